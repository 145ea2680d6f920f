"""The messages of the audit topic. Both kinds have a key, and of one key the message with the highest sequence counts.

    counts   key INSTANCE/PART/TOPIC/WINDOW    what one producer instance has had acknowledged in a window, in total
    life     key INSTANCE                      that an instance lives, or has been closed

Totals, not increments: a message that comes twice or is sent again changes nothing, and compaction may drop all but the
last of a key. An instance is one life of one producer, so that a restarted one adds to what the former has
counted. PART tells apart the totals of a window that an instance has given up in between, to bound its memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from moldau.audit.tally import Tally

TOPIC = "moldau_audit"
TOPIC_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": str(7 * 86_400_000)}
SCHEMA = (
    "kind STRING, instance STRING, part BIGINT, sequence BIGINT, producer STRING, host STRING, at_ms BIGINT, "
    "interval_ms BIGINT, closed BOOLEAN, topic STRING, window_ms BIGINT, window_length_ms BIGINT, "
    "counts ARRAY<BIGINT>, sums ARRAY<BIGINT>"
)
"""Of a value, for Spark."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A producer: what it is called, where it runs, and which of its lives this is."""

    instance: str
    producer: str
    host: str


@dataclass(frozen=True, slots=True)
class Counts:
    origin: Origin
    part: int
    sequence: int
    topic: str
    window_ms: int
    window_length_ms: int
    tally: Tally

    @property
    def key(self) -> str:
        return f"{self.origin.instance}/{self.part}/{self.topic}/{self.window_ms}"

    def value(self) -> bytes:
        return _json(
            kind="counts",
            **asdict(self.origin),
            part=self.part,
            sequence=self.sequence,
            topic=self.topic,
            window_ms=self.window_ms,
            window_length_ms=self.window_length_ms,
            counts=self.tally.counts,
            sums=self.tally.signed_sums,
        )


@dataclass(frozen=True, slots=True)
class Life:
    origin: Origin
    sequence: int
    at_ms: int
    interval_ms: int
    closed: bool

    @property
    def key(self) -> str:
        return self.origin.instance

    def value(self) -> bytes:
        return _json(
            kind="life",
            **asdict(self.origin),
            sequence=self.sequence,
            at_ms=self.at_ms,
            interval_ms=self.interval_ms,
            closed=self.closed,
        )


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def parse(fields: Mapping[str, Any]) -> Counts | Life:
    """From the decoded JSON; ValueError where it is no such message."""
    try:
        origin = Origin(fields["instance"], fields["producer"], fields["host"])
        if fields["kind"] == "life":
            return Life(
                origin, fields["sequence"], fields["at_ms"], fields["interval_ms"], bool(fields["closed"])
            )
        return Counts(
            origin,
            fields["part"],
            fields["sequence"],
            fields["topic"],
            fields["window_ms"],
            fields["window_length_ms"],
            Tally.of(fields["counts"], fields["sums"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no message of the audit: {error}") from error
