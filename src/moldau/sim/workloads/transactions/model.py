"""What clients of transactions may rely on (promises 4 and 6), whatever happens to them and to the broker:

- A reader of committed records never gets one of a transaction that was aborted, or that nobody has asked to commit.
- Of a transaction that was committed all is there, in every partition and the group's offsets; of one whose answer was
  lost, all or nothing. All readers of committed records are shown the same.
- The last stable offset never moves back, and reaches the end of the log when all clients are gone (`checkers`).
- Of two producers with one transactional id the one with the lower epoch is fenced from the moment on at which the
  other has heard of its own: what it sends first after that is neither stored, nor acknowledged, nor committed.

What holds for a log of idempotent producers, transactions or not, is in `sim.model`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.sim.model import Model

NOTHING_COMMITTED = -1


class Fate(Enum):
    """What a client has asked for, and heard, of its transaction."""

    OPEN = "not to be committed yet"
    ABORTED = "aborted"
    COMMITTING = "to be committed, with what outcome nobody knows"
    COMMITTED = "committed"
    REFUSED = "refused to be committed"


MAY_BE_SEEN = (Fate.COMMITTING, Fate.COMMITTED)


class Source(NamedTuple):
    """The record that another one is a copy of."""

    partition: int
    offset: int


@dataclass(eq=False, slots=True)
class Session:
    """A transactional id in the hands of one instance, from its InitProducerId on."""

    number: int
    transactional_id: str
    owner: str
    producer_id: int
    epoch: int
    is_fenced: bool = False

    def __str__(self) -> str:
        return f"{self.transactional_id} of {self.owner} ({self.producer_id}, epoch {self.epoch})"


@dataclass(eq=False, slots=True)
class Attempt:
    """One transaction."""

    number: int
    session: Session
    fate: Fate = Fate.OPEN
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    """Offsets of the group, by the source's partition, as the transaction commits them."""

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.session}"


class Written(NamedTuple):
    """Where a value comes from."""

    attempt: Attempt
    source: Source | None
    by_fenced: bool
    """It was first sent when its producer was fenced for sure."""


class Glimpse(NamedTuple):
    """What a reader of committed records was shown of a stretch of a partition."""

    reader: str
    first_offset: int
    next_offset: int
    values: tuple[tuple[int, bytes], ...]


class TransactionModel:
    """`model` has the logs, and takes what is found to be wrong."""

    def __init__(self, model: Model) -> None:
        self.attempts: list[Attempt] = []
        self.written: dict[bytes, Written] = {}
        self.glimpses: dict[TopicPartition, list[Glimpse]] = {}
        self._model = model
        self._sessions: dict[str, list[Session]] = {}

    # ---- producers ------------------------------------------------------------------------------------------

    def on_session(self, transactional_id: str, owner: str, producer_id: int, epoch: int) -> Session:
        """InitProducerId was answered."""
        sessions = self._sessions.setdefault(transactional_id, [])
        for other in sessions:
            if (other.producer_id, other.epoch) == (producer_id, epoch):
                self._fail(f"an epoch for {owner} that nobody else has", f"that of {other}")
        session = Session(len(sessions), transactional_id, owner, producer_id, epoch)
        sessions.append(session)
        self._fence(transactional_id)
        return session

    def on_epoch(self, session: Session, producer_id: int, epoch: int) -> None:
        """The end of a transaction has given its producer another epoch."""
        session.producer_id, session.epoch = producer_id, epoch
        self._fence(session.transactional_id)

    def _fence(self, transactional_id: str) -> None:
        """Epochs only grow: whoever has a lower one than another has been told of it is fenced."""
        sessions = self._sessions[transactional_id]
        newest = max((session.producer_id, session.epoch) for session in sessions)
        for session in sessions:
            session.is_fenced = session.is_fenced or (session.producer_id, session.epoch) < newest

    def on_fenced_request_taken(self, session: Session, what: str) -> None:
        self._fail(f"{what} of {session}, which was fenced when it was sent, to be refused", "it was taken")

    # ---- transactions ---------------------------------------------------------------------------------------

    def begin(self, session: Session) -> Attempt:
        attempt = Attempt(len(self.attempts), session)
        self.attempts.append(attempt)
        return attempt

    def on_sent(self, attempt: Attempt, place: TopicPartition, value: bytes, source: Source | None) -> None:
        self.written[value] = Written(attempt, source, attempt.session.is_fenced)
        attempt.values.setdefault(place, []).append(value)

    def on_acknowledged(self, values: Iterable[bytes]) -> None:
        for value in values:
            written = self.written[value]
            if written.by_fenced:
                self.on_fenced_request_taken(written.attempt.session, "a batch")

    # ---- the group's offsets ---------------------------------------------------------------------------------

    def committed_offset(self, partition: int) -> int:
        """What a reader of stable offsets who asks now must find at least."""
        return max(
            (a.offsets[partition] for a in self._that_set(partition) if a.fate is Fate.COMMITTED),
            default=NOTHING_COMMITTED,
        )

    def on_offset_read(self, partition: int, offset: int, at_least: int) -> None:
        """The group's offset was read by one who asked when `at_least` was committed."""
        if offset < at_least:
            self._fail(f"the group's offset {at_least} or a later one in source-{partition}", str(offset))
        elif offset != NOTHING_COMMITTED and not any(
            a.offsets[partition] == offset for a in self._that_set(partition) if a.fate in MAY_BE_SEEN
        ):
            self._fail(f"an offset of source-{partition} that was committed", str(offset))

    def _that_set(self, partition: int) -> Iterable[Attempt]:
        return (attempt for attempt in self.attempts if partition in attempt.offsets)

    # ---- readers --------------------------------------------------------------------------------------------

    def on_read(self, place: TopicPartition, offset: int, value: bytes) -> None:
        """Somebody was shown a record, committed or not."""
        written = self.written.get(value)
        if written is not None and written.by_fenced:
            self._model.fail(
                place,
                f"nothing at offset {offset} of {written.attempt.session}, which was fenced",
                "a record",
            )

    def on_glimpse(self, place: TopicPartition, glimpse: Glimpse) -> None:
        """A reader of committed records was shown what is committed in a stretch of a partition."""
        self.glimpses.setdefault(place, []).append(glimpse)
        for offset, value in glimpse.values:
            self.on_read(place, offset, value)
            self.check_may_be_seen(place, offset, value, glimpse.reader)

    def check_may_be_seen(self, place: TopicPartition, offset: int, value: bytes, reader: str) -> None:
        written = self.written.get(value)
        if written is not None and written.attempt.fate not in MAY_BE_SEEN:
            fate = written.attempt.fate.value
            self._model.fail(place, f"nothing of {written.attempt}, which is {fate}", f"{offset} ({reader})")

    def _fail(self, expected: str, found: str) -> None:
        self._model.fail(None, expected, found)
