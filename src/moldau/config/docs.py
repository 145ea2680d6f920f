"""Writes docs/configuration.md from the table (`python -m moldau.config`); a test fails when the page is
stale.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.config.broker_keys import BROKER_KEY_GROUPS
from moldau.config.group_keys import CLIENT_METRICS_KEYS_IN_ORDER, GROUP_BROKER_KEYS, GROUP_KEYS_IN_ORDER
from moldau.config.inert_keys import inert_keys
from moldau.config.key import Key, Scope
from moldau.config.topic_keys import TOPIC_KEYS_IN_ORDER

_LONG_MAX = str((1 << 63) - 1)
_INT_MAX = str((1 << 31) - 1)

_HEAD = """\
# Configuration

The keys are Apache Kafka's, with its names, types, defaults and checks, and a few of Moldau's own
(`moldau.`). This page is made from the table in the code by `make docs`; do not edit it by hand.

A broker takes its settings from, the stronger first:

1. options: `--set log.retention.hours=24`
2. variables: `MOLDAU_LOG_RETENTION_HOURS=24` (and `MOLDAU_HTTP_PORT` for `moldau.http.port`)
3. a file, TOML (`.toml`) or Java properties: `log.retention.hours=24`
4. the defaults below

A bad value is refused with the reason, as is an unknown key in an option or a TOML file. A `.properties` file may
be one of Kafka's: the keys of its earlier releases, of vendors and of plugins are left out, with a warning that names
them; one that is nearly a key of this page is refused with the guess. So it is with variables: `MOLDAU_NUM_PARTITION`
is refused, `MOLDAU_HOME` is warned of, and what Kubernetes sets for a service of that name (`MOLDAU_PORT`,
`MOLDAU_SERVICE_HOST`) is left alone.

A topic takes the broker's value for every key that it does not set itself; `moldau config` and Kafka's own tools
show and change both while the broker runs.

A key marked *no effect yet* is checked, stored and shown, and changes nothing today.
"""


def configuration_page() -> str:
    parts = [_HEAD, "## Topic keys\n", _table(TOPIC_KEYS_IN_ORDER, "Broker's default")]
    for title, keys in BROKER_KEY_GROUPS:
        name = title if title.isupper() else title[0].lower() + title[1:]
        parts += [f"## Broker keys: {name}\n", _table(keys, "Change")]
    parts += ["## Broker keys: groups\n", _table(GROUP_BROKER_KEYS, "Change")]
    parts += ["## Group keys\n", _table(GROUP_KEYS_IN_ORDER, "Broker's default")]
    parts += ["## Client metrics keys\n", _table(CLIENT_METRICS_KEYS_IN_ORDER, "Broker's default")]
    parts += ["## Kafka's keys without effect\n", _inert()]
    return "\n".join(parts)


def _table(keys: Iterable[Key], last_column: str) -> str:
    rows = [f"| Key | Type | Default | Allowed | {last_column} | |", "|---|---|---|---|---|---|"]
    for key in sorted(keys, key=lambda key: key.name):
        allowed = key.check.allowed if key.check is not None else ""
        last = (
            key.update.value if key.scope is Scope.BROKER else ", ".join(f"`{name}`" for name in key.synonyms)
        )
        doc = key.doc if key.acts else f"{key.doc} *No effect yet.*"
        cells = (f"`{key.name}`", key.type.name.lower(), _default(key), allowed, last, doc)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _default(key: Key) -> str:
    if key.default is None:
        return ""
    if key.default == _LONG_MAX:
        return "2^63-1"
    if key.default == _INT_MAX:
        return "2^31-1"
    return f"`{key.default}`" if key.default else "empty"


def _inert() -> str:
    reasons: dict[str, list[str]] = {}
    for key in inert_keys().values():
        reasons.setdefault(key.doc, []).append(f"`{key.name}`")
    lines = [
        "Accepted, so that a Kafka server.properties file can be used as it is, with a warning at the start.\n"
    ]
    for reason, names in reasons.items():
        lines.append(f"- {reason[0].upper()}{reason[1:]}: {', '.join(names)}")
    return "\n".join(lines) + "\n"
