"""One task that writes its rows once, however often Spark tries it: the rows and a marker are one transaction.

The transactional id is the same for every attempt of a task's partition, in every batch. An attempt
  1. reads the marker, *unstable*: where it has this version, the task is done, and the rows are only counted;
  2. calls init_transactions, which fences every earlier attempt and aborts what it has open;
  3. reads the marker again, *stable*: an earlier attempt may have committed between 1 and 2, and nobody can after 2;
  4. sends the rows and the marker in a transaction, and commits it.
Step 1 keeps an attempt that comes late from fencing the next batch. It must not ask for a stable offset: an attempt
that was killed between its marker and its commit leaves one pending, which only step 2 ends.

A producer that is kept from the last batch has done step 2. If the marker is still the one that it wrote, its first
word to the coordinator is a marker (the last one in a transaction counts): should another attempt have fenced it, that
is known before any row has been read, and the steps begin with a new producer.

An attempt that is fenced later on has lost to a copy of itself (speculation): it counts its rows and waits for the
copy's marker, instead of failing, so that Spark does not start a third one that fences the second.

What a replayed task would write must be what was written: rows and checksum are compared, and where they differ the
task fails and says so, since rows would be lost or doubled. Spark's sources give the same rows to the same task on a
replay; an input that is split by the number of cores does not. So a task without rows looks for a marker, too: its
rows of before may be another task's now, which writes them again. Only the first batch of a query's run can be a
replay, and a worker looks once in a run for each partition.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from moldau.spark.topic_sink.clients import Kept
from moldau.spark.topic_sink.markers import Marker, MarkerGroup, MarkerUnreadable, ensure_topic
from moldau.spark.topic_sink.sending import NotDelivered, Outlet

if TYPE_CHECKING:
    from moldau.spark.topic_sink.options import SinkOptions
    from moldau.spark.topic_sink.rows import Rows

CALL_S = 30.0
"""How long one call of the client may take before it is repeated, where it may be."""
INIT_CALL_S = 2.0
"""It is the first call: what a broker refuses is heard between two of it."""
INIT_S_MAX = 120.0
FIRST_MARK_S_MAX = 30.0
COMMIT_S_MAX = 120.0
ABORT_S_MAX = 30.0
WAIT_S = 2.0
WAIT_PAUSE_S = 0.5
LOOKED_MAX = 10_000
ATTEMPTS_MAX = 3
"""How often a kept producer may turn out to be fenced before the task gives up: once is enough, but for races."""


class TaskFailed(Exception):
    """An attempt that has written nothing, or does not know it. Spark may try it again."""


class ReplayDiffers(Exception):
    """A batch that was written before is computed or split differently now."""


class Fenced(Exception):
    """Another producer has taken over the transactional id."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Whose rows they are. `application` is a query or a txnAppId, `version` a batch or a txnVersion."""

    application: str
    version: int
    partition: int
    run: str | None = None
    """Of the query: what has begun since its start is no replay. None where any attempt may be one."""

    def transactional_id(self, topic: str | None) -> str:
        """Also the name of the marker's group. With the topic: one application may write to several."""
        return f"moldau-sink-{self.application}-{topic or '*'}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Written:
    rows: int
    replayed: bool
    """They were there already."""


@dataclass(slots=True)
class Tally:
    rows: int = 0
    checksum: int = 0

    def add(self, rows: Rows) -> None:
        self.rows += len(rows)
        self.checksum = (self.checksum + rows.checksum()) & (1 << 64) - 1


class Transactions:
    """A producer with a transactional id, and the marker that was there when nobody else could write one."""

    def __init__(self, options: SinkOptions, transactional_id: str, group: str) -> None:
        config = {**options.producer, "transactional.id": transactional_id}
        self.outlet = Outlet(config, options.max_block_ms)
        self.marker: Marker | None = None
        self._marker_topic = options.marker_topic
        self._group = group

    @property
    def version(self) -> int:
        return -1 if self.marker is None else self.marker.version

    def init(self) -> None:
        self._call("init_transactions", INIT_S_MAX, call_s=INIT_CALL_S)

    def begin(self) -> None:
        try:
            self.outlet.producer.begin_transaction()
        except KafkaException as failure:
            raise self._reason("begin_transaction", failure.args[0]) from None

    def mark(self, marker: Marker, within_s: float) -> None:
        """librdkafka does not keep the time-out of this call (confluentinc/librdkafka#5456); we do."""
        name, offset = "send_offsets_to_transaction", marker.as_offset(self._marker_topic)
        if not in_time(lambda: self._call(name, within_s, offset, self._group), within_s + CALL_S):
            raise TaskFailed(f"{name} has no answer after {within_s + CALL_S:g} s")

    def commit(self, marker: Marker) -> None:
        self._call("commit_transaction", COMMIT_S_MAX)
        self.marker = marker

    def abort(self) -> None:
        """As far as it goes: whoever comes next does it in `init`, and else the coordinator after the time-out."""
        try:
            self._call("abort_transaction", ABORT_S_MAX)
        except (Fenced, TaskFailed):
            pass

    def close(self) -> None:
        self.outlet.close()

    def _call(self, name: str, within_s: float, *arguments: Any, call_s: float | None = None) -> None:
        """A call to the coordinator, repeated where that may help. Fenced, or TaskFailed."""
        deadline_s, call_s = time.monotonic() + within_s, call_s or CALL_S
        while True:
            try:
                getattr(self.outlet.producer, name)(*arguments, call_s)
                return
            except KafkaException as failure:
                error = failure.args[0]
                self.outlet.producer.poll(0)  # lets it hear
                if not error.retriable() or self.outlet.is_refused or time.monotonic() > deadline_s:
                    raise self._reason(name, error) from None

    def _reason(self, name: str, error: Any) -> Exception:
        if is_fencing(error) or is_fencing(self.outlet.fatal):
            return Fenced(error.str())
        return TaskFailed(f"{name} failed: {self.outlet.heard.explain(error.str())}")


def in_time(call: Callable[[], None], within_s: float) -> bool:
    """Whether it has come back; what it raises is raised. Else it goes on in a thread, with all that it holds."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, name="client-call", daemon=True)
    thread.start()
    thread.join(within_s)
    if failures:
        raise failures[0]
    return not thread.is_alive()


KEPT: Kept[Transactions] = Kept()
MARKERS: Kept[MarkerGroup] = Kept()
LOOKED: OrderedDict[tuple[str, str], None] = OrderedDict()
"""The runs and transactional ids whose marker this worker has seen: no task of theirs is a replay now."""


def is_fencing(error: Any) -> bool:
    return error is not None and error.code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    )


class ExactlyOnceTask:
    """One attempt of a task. `reached` is told each step, for tests that let it fail there."""

    def __init__(
        self,
        options: SinkOptions,
        identity: TaskIdentity,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._options = options
        self._identity = identity
        self._id = identity.transactional_id(options.topic)
        self._key = (self._id, tuple(sorted(options.producer.items())), options.marker_topic)
        self._reached = reached
        self._tally = Tally()

    def write(self, batches: Iterator[Rows]) -> Written:
        """A task without rows writes nothing."""
        first = next((rows for rows in batches if len(rows)), None)
        if first is None:
            return self._write_nothing()
        self._reached("begin")
        ensure_topic(tuple(sorted(self._options.admin.items())), self._options.marker_topic)
        with self._markers() as markers:
            written = self._write(chain([first], batches), markers)
        self._note_looked()
        return written

    def _write_nothing(self) -> Written:
        if self._options.replay_check == "none" or (self._identity.run, self._id) in LOOKED:
            return Written(0, replayed=False)
        with self._markers() as markers:
            seen = markers.read()
        written = Written(0, replayed=False)
        if seen is not None and seen.version >= self._identity.version:
            written = self._compare(seen)
        self._note_looked()
        return written

    @contextmanager
    def _markers(self) -> Iterator[MarkerGroup]:
        topic = self._options.marker_topic
        key = tuple(sorted(self._options.admin.items())), topic, self._id
        markers = MARKERS.take(key) or MarkerGroup(self._options.admin, topic, self._id)
        try:
            yield markers
        finally:
            MARKERS.give_back(key, markers)

    def _note_looked(self) -> None:
        if self._identity.run is not None:
            LOOKED[self._identity.run, self._id] = None
            while len(LOOKED) > LOOKED_MAX:
                LOOKED.popitem(last=False)

    def _write(self, batches: Iterator[Rows], markers: MarkerGroup) -> Written:
        began_s = time.monotonic()
        try:
            transactions = self._start(markers)
            if isinstance(transactions, Marker):
                self._count(batches)
                return self._compare(transactions)
            self._transact(transactions, batches)
        except Fenced as reason:
            return self._wait_for_the_other(batches, markers, str(reason), began_s)
        KEPT.give_back(self._key, transactions)
        return Written(self._tally.rows, replayed=False)

    # Steps 1 to 3

    def _start(self, markers: MarkerGroup) -> Transactions | Marker:
        """A producer in a transaction that nobody else can write beside; or the marker that says that all is done."""
        for _ in range(ATTEMPTS_MAX):
            seen = markers.read()
            self._reached("marker read")
            if seen is not None and seen.version >= self._identity.version:
                return seen
            kept = KEPT.take(self._key)
            if kept is None:
                return self._start_anew(markers)
            if self._begin_kept(kept, seen):
                return kept
            kept.close()
        raise TaskFailed(f"{self._id} is fenced again and again")

    def _begin_kept(self, kept: Transactions, seen: Marker | None) -> bool:
        """Whether the producer of the last batch can write this one."""
        if kept.marker != seen:
            return False
        try:
            kept.begin()
            kept.mark(Marker(self._identity.version, 0, 0), FIRST_MARK_S_MAX)
        except (Fenced, TaskFailed):
            return False
        self._reached("producer kept")
        return True

    def _start_anew(self, markers: MarkerGroup) -> Transactions | Marker:
        transactions = Transactions(self._options, self._id, markers.name)
        try:
            transactions.init()
            self._reached("fenced the others")
            transactions.marker = markers.read_stable()
            self._reached("marker read again")
            if transactions.marker is not None and transactions.version >= self._identity.version:
                KEPT.give_back(self._key, transactions)
                return transactions.marker
            transactions.begin()
        except BaseException:
            transactions.close()
            raise
        return transactions

    # Step 4

    def _transact(self, transactions: Transactions, batches: Iterator[Rows]) -> None:
        try:
            self._send(transactions.outlet, batches)
            marker = Marker(self._identity.version, self._tally.rows, self._tally.checksum)
            transactions.mark(marker, COMMIT_S_MAX)
            self._reached("marked")
            transactions.commit(marker)
        except Fenced:
            transactions.close()
            raise
        except BaseException:
            transactions.abort()
            transactions.close()
            raise
        self._reached("committed")

    def _send(self, outlet: Outlet, batches: Iterator[Rows]) -> None:
        try:
            for rows in batches:
                self._tally.add(rows)
                outlet.send(rows)
                self._reached("rows sent")
            outlet.finish()
        except NotDelivered as failure:
            if is_fencing(failure.error) or is_fencing(outlet.fatal):
                raise Fenced(str(failure)) from None
            raise
        self._reached("rows delivered")

    # Where others have written

    def _count(self, batches: Iterator[Rows]) -> None:
        for rows in batches:
            self._tally.add(rows)

    def _wait_for_the_other(
        self, batches: Iterator[Rows], markers: MarkerGroup, reason: str, began_s: float
    ) -> Written:
        timeout_s = self._options.transaction_timeout_ms / 1000
        if time.monotonic() - began_s > timeout_s:
            raise TaskFailed(
                f"the task took longer than kafka.transaction.timeout.ms ({timeout_s:g} s) allows: {reason}"
            )
        self._reached("fenced")
        self._count(batches)
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            try:
                seen = markers.read_stable(within_s=WAIT_S)
            except MarkerUnreadable:
                continue
            if seen is not None and seen.version >= self._identity.version:
                return self._compare(seen)
            time.sleep(WAIT_PAUSE_S)
        raise TaskFailed(f"another attempt has taken over and has written nothing since: {reason}")

    def _compare(self, marker: Marker) -> Written:
        ours = Marker(self._identity.version, self._tally.rows, self._tally.checksum)
        check = self._options.replay_check
        differs = marker.version == ours.version and (
            (check != "none" and marker.rows != ours.rows) or (check == "content" and marker != ours)
        )
        if differs:
            raise ReplayDiffers(
                f"batch {ours.version} of {self._id} was written with {marker}, and is now replayed with {ours}: the "
                "query's input is computed or split differently than before, and rows would be lost or doubled. "
                "Restore what has changed (the query, its number of partitions), or, where rows differ on purpose (a "
                "random column), set replayCheck to rows or none."
            )
        return Written(ours.rows, replayed=True)
