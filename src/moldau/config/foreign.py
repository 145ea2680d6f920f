"""Names among the settings that are no keys here: those of others are left out, misspelt ones of ours are refused.

Kafka takes any name in its server.properties: those of its own older releases, of vendors and of plugins are there, and
a broker that refused them could not take such a file over. A variable `MOLDAU_...` may be none of ours either: for a
service of the name moldau Kubernetes gives every container MOLDAU_PORT, MOLDAU_SERVICE_HOST and more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from moldau.config.inert_keys import inert_keys
from moldau.config.spelling import meant
from moldau.config.table import (
    BROKER_KEYS,
    OWN,
    TOPIC_KEYS,
    broker_key,
    listener_key_meant,
    unknown_broker_key,
)

OTHER_KAFKA_KEYS = frozenset(
    {
        "consumer.max.session.timeout.ms",
        "consumer.min.session.timeout.ms",
        "control.plane.listener.name",
        "log.default.flush.scheduler.interval.ms",
    }
)
"""Of those that Kafka has given up or keeps to itself, the ones that look like one of today's misspelt."""
_OF_A_SERVICE = re.compile(
    r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_URL_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://")


def foreign_keys(names: Iterable[str]) -> list[str]:
    """The names in a .properties file that somebody else made up; ConfigError for one that is nearly ours."""
    return [name for name in names if broker_key(name) is None and _is_foreign(name)]


def _is_foreign(name: str) -> bool:
    if name in OTHER_KAFKA_KEYS:
        return True
    lower = name.lower()
    if lower.startswith(OWN) or OWN + lower in BROKER_KEYS or lower in TOPIC_KEYS:
        raise unknown_broker_key(name)
    if listener_key_meant(lower) or meant(name, [*BROKER_KEYS, *inert_keys()]):
        raise unknown_broker_key(name)
    return True


def is_of_a_service(variable: str, value: str) -> bool:
    """Whether Kubernetes, or a link of Docker's, has set this variable. That of a service `moldau-http` has the name of
    one of ours, but never its value."""
    if variable.endswith("_PORT") and _URL_OF_A_SERVICE.match(value):
        return True
    return _OF_A_SERVICE.fullmatch(variable) is not None
