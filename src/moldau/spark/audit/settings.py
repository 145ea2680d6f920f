"""What an audit is about: the settings `moldau.audit.*` of the project's `configuration`. Its flows read them through
Spark, `moldau audit` without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.audit.comparison import Rules
from moldau.audit.messages import TOPIC
from moldau.spark.pipeline.flows import seconds

PREFIX = "moldau.audit."
WINDOW = "1 minute"
LATENESS = "5 minutes"


class NoAudit(Exception):
    """The project's configuration is not one of an audit, in a sentence."""


@dataclass(frozen=True)
class AuditSettings:
    topics: tuple[str, ...]
    tables: Mapping[str, tuple[str, ...]]
    """By topic, the folders of the tables that keep its records; together they keep each once."""
    kafka: Mapping[str, str] = field(repr=False)
    """The options `kafka.*` of the source."""
    group: str
    """To which the flows commit how far they have come."""
    rules: Rules
    audit_topic: str = TOPIC


def read_settings(configuration: Mapping[str, str]) -> AuditSettings:
    given = {
        key.removeprefix(PREFIX): value for key, value in configuration.items() if key.startswith(PREFIX)
    }
    topics = tuple(filter(None, (topic.strip() for topic in given.get("topics", "").split(","))))
    if not topics:
        raise NoAudit(f"the setting {PREFIX}topics is missing: it names the topics to audit, with commas.")
    kafka = {key: value for key, value in given.items() if key.startswith("kafka.")}
    if "kafka.bootstrap.servers" not in kafka:
        raise NoAudit(f"the setting {PREFIX}kafka.bootstrap.servers is missing.")
    tables = read_tables(given.get("tables", "{}"))
    if unknown := sorted(tables.keys() - set(topics)):
        raise NoAudit(f"{PREFIX}tables names {unknown[0]}, which is not among {PREFIX}topics.")
    window_ms, lateness_ms = (
        duration_ms(name, given.get(name, usual))
        for name, usual in (("window", WINDOW), ("lateness", LATENESS))
    )
    return AuditSettings(
        topics,
        tables,
        kafka,
        given.get("group", "moldau-audit"),
        Rules(window_ms, lateness_ms, frozenset(tables)),
        given.get("topic", TOPIC),
    )


def read_tables(text: str) -> dict[str, tuple[str, ...]]:
    """`{"orders": "/lake/orders", "views": ["/lake/views", "/lake/rejected"]}`."""
    try:
        given = json.loads(text)
        return {
            topic: tuple(str(path) for path in ([paths] if isinstance(paths, str) else paths))
            for topic, paths in given.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise NoAudit(f'{PREFIX}tables must be JSON such as {{"orders": "/lake/orders"}}.') from None


def duration_ms(name: str, text: str) -> int:
    value = seconds(text)
    if value is None or (name == "window" and value < 1):
        raise NoAudit(f"{PREFIX}{name}={text} is no duration: write 1 minute, 30 seconds or 500 ms.")
    return int(value * 1000)
