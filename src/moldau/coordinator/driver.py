"""Drives one shard over its journal: replay, decide, append, apply, answer when committed.

Guarantees:
- A decision's records are appended before they are applied, and applied before anything else is decided. What cannot
  be appended is not applied: its answers become an error.
- Answers and effects come after the high watermark has passed everything that was written before them, so no client
  is told, and nobody reads, what could still be lost. There is nothing to take back: state that was applied and is lost
  with leadership goes with the whole shard.
- An event that `takes_long` is decided, and its records are applied, in a thread: the loop goes on. What comes for the
  shard meanwhile waits, in order, so that a shard is never used by two. One thread does this on a broker at a time.
- A deadline is judged after what has already arrived: heartbeats that wait in the sockets are heard first, and after
  the loop was held, or the process stopped, everybody has a moment to be heard.
- A log is replayed in pieces. Meanwhile requests wait, in order; where it takes longer than a moment they are answered
  COORDINATOR_LOAD_IN_PROGRESS, which Kafka's does at once, and which some clients show to their application.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import (
    COORDINATOR_CALLS_HELD_MAX,
    COORDINATOR_GRACES_MAX,
    COORDINATOR_NOTES_HELD_MAX,
)
from moldau.coordinator.fields import BadFields
from moldau.coordinator.journal import RECORD_OVERHEAD_BYTES, Entry, Journal
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment, Producer, ShardT
from moldau.records.record import BadRecord
from moldau.runtime.ports import Clock, Tasks, Timer

log = logging.getLogger(__name__)

RECORDS_PER_TURN = 256
"""Records replayed in one turn of the loop: about two milliseconds."""
CALLS_PER_TURN = 20
"""Requests that have waited for the load, served in one turn."""
PATIENCE_S = 3.0
"""How long requests wait for the load."""
RELOAD_DELAY_S = (0.1, 0.5, 2.0, 10.0)
"""Between attempts to load a log that cannot be read."""
TURNS_TO_RECEIVE = 4
"""Turns of the loop between a timer and its judgement. uvloop runs timers, then what was put off, and only then looks
at the sockets: what they have is served by the third turn, and one is to spare."""
LATE_MS = 100
"""A timer that comes later than this says that nobody could be heard meanwhile."""
GRACE_MS = 1_000
"""How long everybody has to be heard then: what waits in the sockets may be behind other data, and clients that gave up
their connection make a new one and look for the coordinator first."""


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


Piece = tuple[Sequence[Any], list[tuple[bytes, bytes | None]]]
"""Records of one batch, and each as it is stored."""
TakesLong = Callable[[ShardT], bool]
"""Whether an event is to be decided aside, by a look at the shard that takes no time."""


class _Waiting:
    """What is to be answered and done once the log is committed up to an offset."""

    __slots__ = ("answers", "deadline_ms", "effects", "next_offset")

    def __init__(self, next_offset: int, deadline_ms: int, decision: Decision) -> None:
        self.next_offset = next_offset
        self.deadline_ms = deadline_ms
        self.answers = decision.answers
        self.effects = decision.effects


class Driver(Generic[ShardT]):
    """`make_shard` is called for each attempt to load; `perform` carries out the effects of decisions."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        make_shard: Callable[[], ShardT],
        tasks: Tasks,
        clock: Clock,
        *,
        write_timeout_ms: int,
        perform: Callable[[Any], object],
        thread: asyncio.Lock | None = None,
    ) -> None:
        self.name = name
        self.state = State.LOADING
        self._journal = journal
        self._make_shard = make_shard
        self._shard: ShardT = make_shard()
        self._tasks = tasks
        self._clock = clock
        self._write_timeout_ms = write_timeout_ms
        self._perform = perform
        self._next_offset = 0  # after the last record that was applied
        self._waiting: deque[_Waiting] = deque()
        self._held: list[Callable[[ShardT, Moment], Decision]] = []  # for after the load
        self._has_dropped_notes = False
        self._calls: deque[tuple[Callable[[], None], Reply | None]] = deque()
        """Requests that wait for the load or for what is decided aside, and those behind them."""
        self._thread = thread or asyncio.Lock()
        self._is_aside = False  # the shard is a thread's
        self._patience: Timer | None = tasks.call_later(PATIENCE_S, self._lose_patience)
        self._is_writing = False
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._is_judging = False
        self._judges_from_ms = 0  # not before: the last timer came late
        self._graces = 0  # in a row

    # ---- life -----------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replay the log, however often it takes, and begin to serve."""
        attempt = 0
        while self.state is State.LOADING:
            try:
                await self._replay()
                break
            except (OSError, KafkaError, BadRecord) as error:
                if self.state is State.LOADING:
                    log.error("cannot load %s: %s", self.name, error)
                    await self._tasks.sleep(RELOAD_DELAY_S[min(attempt, len(RELOAD_DELAY_S) - 1)])
                attempt += 1
        if self.state is State.LOADING:
            self._activate()
            await self._serve_calls()

    def _activate(self) -> None:
        self.state = State.ACTIVE
        self._journal.on_committed(self._on_committed)
        moment = self._moment()
        self._carry_out(self._shard.on_loaded(moment), moment)
        held, self._held = self._held, []
        for decide in held:
            self._carry_out(decide(self._shard, moment), moment)

    async def _serve_calls(self) -> None:
        """Who comes meanwhile is served behind those who have waited."""
        self._end_patience()
        while self._calls and not self._is_aside:
            for _ in range(min(CALLS_PER_TURN, len(self._calls))):
                if not self._is_aside:
                    call, _reply = self._calls.popleft()
                    call()
            await self._tasks.sleep(0)

    def _lose_patience(self) -> None:
        self._patience = None
        calls, self._calls = self._calls, deque()
        for _call, reply in calls:
            if reply is not None:
                reply.fail(ErrorCode.coordinator_load_in_progress)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def close(self, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Give up leadership: whoever waits is told, and the state is forgotten."""
        if self.state is State.CLOSED:
            return
        was_active = self.state is State.ACTIVE
        self.state = State.CLOSED
        self._end_patience()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if was_active:
            self._journal.on_committed(None)
        waiting, self._waiting = self._waiting, deque()
        calls, self._calls = self._calls, deque()
        replies = [reply for one in waiting for reply, _ in one.answers]
        replies += [reply for _call, reply in calls if reply is not None]
        for reply in replies if self._is_aside else [*replies, *self._shard.parked()]:
            reply.fail(error)

    async def _replay(self) -> None:
        self._shard = self._make_shard()
        journal = self._journal
        offset = journal.first_offset
        while offset < journal.next_offset and self.state is State.LOADING:
            entries, next_offset = await journal.read(offset)
            if next_offset == offset:  # compaction has removed what was there
                break
            for start in range(0, len(entries), RECORDS_PER_TURN):
                for entry in entries[start : start + RECORDS_PER_TURN]:
                    self._replay_entry(entry)
                await self._tasks.sleep(0)
            offset = next_offset
        self._next_offset = journal.next_offset

    def _replay_entry(self, entry: Entry) -> None:
        if entry.is_commit is not None:
            if entry.producer is not None:
                self._shard.apply_marker(entry.producer, is_commit=entry.is_commit)
            return
        record = None if entry.key is None else self._shard.decode(entry.key, entry.value)
        if record is None:
            log.warning("%s: the record at offset %d is of an unknown kind", self.name, entry.offset)
        else:
            self._shard.apply(record, entry.producer)

    # ---- events ---------------------------------------------------------------------------------------------

    def write(
        self,
        decide: Callable[[ShardT, Moment], Decision],
        reply: Reply,
        takes_long: TakesLong[ShardT] | None = None,
    ) -> None:
        """An event that may change the state. `decide` parks the reply, or answers it in its decision."""
        if not self._waits(partial(self._decide, decide, takes_long, reply), reply):
            self._decide(decide, takes_long, reply)

    def _decide(
        self,
        decide: Callable[[ShardT, Moment], Decision],
        takes_long: TakesLong[ShardT] | None = None,
        reply: Reply | None = None,
    ) -> None:
        if takes_long is not None and takes_long(self._shard):
            self._begin_aside(self._decide_aside(decide, reply))
            return
        moment = self._moment()
        self._carry_out(decide(self._shard, moment), moment)

    def note(
        self, decide: Callable[[ShardT, Moment], Decision], takes_long: TakesLong[ShardT] | None = None
    ) -> None:
        """An event of the cluster that nobody waits for; it is kept while the log is loaded."""
        if self._is_free:
            self._decide(decide, takes_long)
        elif self.state is State.CLOSED:
            return
        elif len(self._held) + len(self._calls) >= COORDINATOR_NOTES_HELD_MAX:
            if not self._has_dropped_notes:
                self._has_dropped_notes = True
                log.warning("%s is busy for long: it does not hear of all that happens meanwhile", self.name)
        elif self.state is State.LOADING:
            self._held.append(decide)
        else:
            self._calls.append((partial(self._decide, decide, takes_long), None))

    def read(
        self,
        look: Callable[[ShardT, Moment], Any],
        reply: Reply,
        takes_long: TakesLong[ShardT] | None = None,
    ) -> None:
        """Look at the state; answered when all that was seen is committed."""
        self.write(lambda shard, moment: Decision(answers=((reply, look(shard, moment)),)), reply, takes_long)

    def apply_marker(
        self, producer: Producer, *, is_commit: bool, takes_long: TakesLong[ShardT] | None = None
    ) -> None:
        """A transaction's marker was appended to the partition by its coordinator."""
        call = partial(self._apply_marker, producer, is_commit, takes_long)
        if self._is_free:
            call()
        elif self.state is State.ACTIVE:
            self._calls.append((call, None))  # without a bound: it is in the log

    def _apply_marker(
        self, producer: Producer, is_commit: bool, takes_long: TakesLong[ShardT] | None
    ) -> None:
        self._next_offset = self._journal.next_offset
        if takes_long is not None and takes_long(self._shard):
            self._begin_aside(self._apply_marker_aside(producer, is_commit))
        else:
            self._shard.apply_marker(producer, is_commit=is_commit)

    @property
    def shard_now(self) -> ShardT | None:
        """For a look that changes nothing, and need not be of what is committed. None while it is loaded, or a
        thread has it."""
        return self._shard if self.state is State.ACTIVE and not self._is_aside else None

    @property
    def _is_free(self) -> bool:
        """Whether an event can be decided now: nothing waits, and no thread has the shard."""
        return self.state is State.ACTIVE and not self._calls and not self._is_aside

    def _waits(self, call: Callable[[], None], reply: Reply) -> bool:
        """Whether a request cannot be served now: it waits for the load, or is refused."""
        if self._is_free:
            return False
        is_waiting = self._patience is not None or self._calls or self._is_aside
        if self.state is State.CLOSED:
            reply.fail(ErrorCode.not_coordinator)
        elif is_waiting and len(self._calls) < COORDINATOR_CALLS_HELD_MAX:
            self._calls.append((call, reply))
        else:
            reply.fail(ErrorCode.coordinator_load_in_progress)
        return True

    def _carry_out(self, decision: Decision, moment: Moment) -> None:
        if not decision.records or self._write(decision, moment):
            self._answer(decision, moment)
        self._on_committed()
        self._set_timer(moment.ms)

    def _answer(self, decision: Decision, moment: Moment) -> None:
        """What was decided is written: answer now, or once it is committed."""
        for reply, response in decision.answers_now:
            reply.answer(response)
        if decision.answers or decision.effects:
            deadline_ms = moment.ms + self._write_timeout_ms
            self._waiting.append(_Waiting(self._next_offset, deadline_ms, decision))

    def _write(self, decision: Decision, moment: Moment) -> bool:
        """Append and apply; False where the log refuses, and every answer says so."""
        self._is_writing = True
        try:
            for piece, stored in self._pieces(decision):
                self._next_offset = self._journal.append(stored, moment.wall_ms, decision.producer)
                self._apply(piece, decision.producer)
        except (KafkaError, BadFields) as refusal:
            _refuse(decision, refusal)
            return False
        finally:
            self._is_writing = False
        return True

    def _apply(self, piece: Sequence[Any], producer: Producer | None) -> None:
        for record in piece:
            self._shard.apply(record, producer)

    def _pieces(self, decision: Decision) -> Iterator[Piece]:
        """One batch, or as many as the log's limit asks for where the decision may be cut."""
        if decision.is_atomic:
            yield decision.records, [self._shard.encode(record) for record in decision.records]
            return
        piece: list[Any] = []
        stored: list[tuple[bytes, bytes | None]] = []
        size = 0
        for record in decision.records:
            key, value = self._shard.encode(record)
            added = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
            if piece and size + added > self._journal.batch_bytes_max:
                yield piece, stored
                piece, stored, size = [], [], 0
            piece.append(record)
            stored.append((key, value))
            size += added
        yield piece, stored

    # ---- aside ----------------------------------------------------------------------------------------------

    def _begin_aside(self, work: Awaitable[None]) -> None:
        """The shard is this work's until it has ended."""
        self._is_aside = True
        self._tasks.spawn(self._aside(work), name=f"decide for {self.name}")

    async def _aside(self, work: Awaitable[None]) -> None:
        try:
            async with self._thread:
                await work
        finally:
            self._is_aside = False
            if self.state is State.CLOSED:
                for reply in self._shard.parked():
                    reply.fail(ErrorCode.not_coordinator)
            else:
                self._on_committed()
                self._set_timer(self._moment().ms)
                await self._serve_calls()

    async def _apply_marker_aside(self, producer: Producer, is_commit: bool) -> None:
        await self._tasks.in_thread(partial(self._shard.apply_marker, producer, is_commit=is_commit))

    async def _decide_aside(self, decide: Callable[[ShardT, Moment], Decision], reply: Reply | None) -> None:
        moment = self._moment()
        try:
            decision = await self._tasks.in_thread(decide, self._shard, moment)
        except BaseException:
            if reply is not None:
                reply.fail(ErrorCode.unknown_server_error)
            raise
        if not decision.records or await self._write_aside(decision, moment):
            if self.state is State.ACTIVE:
                self._answer(decision, moment)
            else:
                _refuse(decision, KafkaError(ErrorCode.not_coordinator))

    async def _write_aside(self, decision: Decision, moment: Moment) -> bool:
        """As `_write`; the journal is the loop's, encoding and applying are not."""
        in_thread = self._tasks.in_thread
        try:
            pieces: list[Piece] = await in_thread(list, self._pieces(decision))
            for piece, stored in pieces:
                if self.state is not State.ACTIVE:
                    raise KafkaError(ErrorCode.not_coordinator)
                self._next_offset = self._journal.append(stored, moment.wall_ms, decision.producer)
                await in_thread(self._apply, piece, decision.producer)
        except (KafkaError, BadFields) as refusal:
            _refuse(decision, refusal)
            return False
        return True

    def _on_committed(self) -> None:
        if self._is_writing:  # called from within an append: first its records are applied
            return
        waiting = self._waiting
        while waiting and waiting[0].next_offset <= self._journal.committed_offset:
            done = waiting.popleft()
            for reply, response in done.answers:
                reply.answer(response)
            for effect in done.effects:
                self._perform(effect)

    # ---- time -----------------------------------------------------------------------------------------------

    def _moment(self) -> Moment:
        return Moment(int(self._clock.monotonic() * 1000), self._clock.wall_ms())

    def _set_timer(self, now_ms: int) -> None:
        """One timer, for the shard's next deadline or the first answer that has waited for too long."""
        if self.state is not State.ACTIVE or self._is_judging or self._is_aside:
            return
        due_ms = self._shard.next_deadline_ms
        late_ms = next((one.deadline_ms for one in self._waiting if one.answers), None)
        if late_ms is not None and (due_ms is None or late_ms < due_ms):
            due_ms = late_ms
        if due_ms is not None and due_ms < self._judges_from_ms:
            due_ms = self._judges_from_ms
        if self._timer is not None:
            if due_ms is not None and self._timer_due_ms <= due_ms:
                return  # it comes early, and is set again then
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            self._timer_due_ms = due_ms
            self._timer = self._tasks.call_later(max(0, due_ms - now_ms) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._moment().ms
        late_ms = now_ms - self._timer_due_ms
        if late_ms > LATE_MS and self._graces < COORDINATOR_GRACES_MAX:
            self._graces += 1
            self._judges_from_ms = now_ms + GRACE_MS
            log.warning("%s: a timer came %d ms late; members have %d ms more", self.name, late_ms, GRACE_MS)
            self._set_timer(now_ms)
            return
        if late_ms <= LATE_MS:
            self._graces = 0
        self._is_judging = True
        self._judge_after(TURNS_TO_RECEIVE)

    def _judge_after(self, turns: int) -> None:
        if turns:
            self._tasks.call_soon(self._judge_after, turns - 1)
            return
        self._is_judging = False
        if self.state is State.ACTIVE and not self._is_aside:  # else it is set again when the shard is back
            self._judge()

    def _judge(self) -> None:
        moment = self._moment()
        try:
            for decision in self._shard.on_time(moment):
                self._carry_out(decision, moment)
            self._give_up_late(moment.ms)
        finally:  # whatever one group's deadline led to, the others have theirs
            self._set_timer(moment.ms)

    def _give_up_late(self, now_ms: int) -> None:
        """Answer those who have waited too long for the high watermark; what was written stays written."""
        for one in self._waiting:
            if one.deadline_ms > now_ms:
                break
            answers, one.answers = one.answers, ()
            for reply, _ in answers:
                reply.fail(ErrorCode.coordinator_not_available)


def _refuse(decision: Decision, refusal: KafkaError | BadFields) -> None:
    """It cannot be written: every answer says so."""
    code = refusal.code if isinstance(refusal, KafkaError) else ErrorCode.unknown_server_error
    for reply, _ in [*decision.answers_now, *decision.answers]:
        reply.fail(code)
