"""What a coordinator's state machine is: events in, decisions out, state changed by records alone.

A shard is the part of a coordinator's state that one partition of its internal topic holds. It is a plain object: no
clock, no chance, no input or output. Its driver (`driver`) gives it events with the time, appends the records that it
decides on, applies them, and answers when they are committed. The simulation and the unit tests drive it the same way.

The rules that make it replicable:
- What must survive is changed by `apply` only, and `apply` does the same live and at replay.
- An event may change what is lost with leadership anyway (who waits for an answer, when a session ends), directly.
  Such a change must be harmless if the decision's records cannot be written: then every answer of the decision becomes
  an error, and nothing was applied.
- A timer is a deadline that the shard names; when it passes, `on_time` decides like any other event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from moldau.coordinator.reply import Reply


class Moment(NamedTuple):
    """The time of an event."""

    ms: int
    """Monotonic: for deadlines."""
    wall_ms: int
    """For what is recorded: timestamps of commits, the time since which a group is empty."""


class Producer(NamedTuple):
    """Who wrote a record as part of a transaction."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What an event leads to. Answers and effects are carried out once the records are committed, in order."""

    records: Sequence[Any] = ()
    """The shard's own record values, in the order in which they are to be appended and applied."""
    answers: Sequence[tuple[Reply, Any]] = ()
    answers_now: Sequence[tuple[Reply, Any]] = ()
    """Answers that need not wait for what was written before, such as those to heartbeats."""
    effects: Sequence[Any] = ()
    """Work outside of the shard (transaction markers to be written), for `perform` of the runtime."""
    is_atomic: bool = True
    """All records in one batch. Otherwise they may be cut: a clean-up of thousands of records."""
    producer: Producer | None = None
    """The records belong to this producer's transaction."""


NOTHING = Decision()


class Shard(Protocol):
    """One partition's state machine."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """A record's key and value as they are stored; None as the value takes the key back (a tombstone)."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """A stored record; None for a kind that this version does not know, which is left alone."""
        ...

    def apply(self, record: Any, producer: Producer | None) -> None:
        """Take a record into the state: the only way in which durable state changes."""
        ...

    def apply_marker(self, producer: Producer, *, is_commit: bool) -> None:
        """A transaction with records in this partition has ended."""
        ...

    def on_loaded(self, moment: Moment) -> Decision:
        """The log was replayed: begin to serve."""
        ...

    def parked(self) -> Sequence[Reply]:
        """Give up the answers that wait in the shard: it ends, and others will answer."""
        ...

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, on the monotonic clock."""
        ...

    def on_time(self, moment: Moment) -> Iterator[Decision]:
        """Decide on all that is due, one thing after the other: each is carried out before the next is asked for."""
        ...


ShardT = TypeVar("ShardT", bound=Shard)
