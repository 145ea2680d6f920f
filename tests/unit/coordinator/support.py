"""A journal in memory whose high watermark the test moves, a toy state machine, and a driver over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.driver import Driver
from moldau.coordinator.journal import Entry, KeyValue
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import NOTHING, Decision, Moment, Producer
from moldau.sim.world import World


class MemoryJournal:
    """Batches as lists; with `commits=False` the high watermark moves by `commit()` only."""

    def __init__(self, *, commits: bool = True) -> None:
        self.batches: list[list[Entry]] = []
        self.commits = commits
        self.committed_offset = 0
        self.first_offset = 0
        self.batch_bytes_max = 1000
        self.refusal: ErrorCode | None = None
        self.unreadable: list[Exception] = []
        self._callback: Callable[[], object] | None = None

    @property
    def entries(self) -> list[Entry]:
        return [entry for batch in self.batches for entry in batch]

    @property
    def next_offset(self) -> int:
        return len(self.entries)

    def append(self, records: Sequence[KeyValue], wall_ms: int, producer: Producer | None = None) -> int:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        first = self.next_offset
        self.batches.append(
            [Entry(first + index, key, value, producer) for index, (key, value) in enumerate(records)]
        )
        if self.commits:
            self.commit()
        return self.next_offset

    def append_marker(self, producer: Producer, *, is_commit: bool) -> None:
        self.batches.append([Entry(self.next_offset, b"", b"", producer, is_commit)])

    async def read(self, offset: int) -> tuple[list[Entry], int]:
        if self.unreadable:
            raise self.unreadable.pop(0)
        batch = next(batch for batch in self.batches if batch[-1].offset >= offset)
        return [entry for entry in batch if entry.offset >= offset], batch[-1].offset + 1

    def on_committed(self, callback: Callable[[], object] | None) -> None:
        self._callback = callback

    def commit(self, next_offset: int | None = None) -> None:
        self.committed_offset = self.next_offset if next_offset is None else next_offset
        if self._callback is not None:
            self._callback()


class Registers:
    """The toy: named values. A value can have a time to live, and a request can wait for the next change."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.markers: list[tuple[Producer, bool]] = []
        self.waiting: list[Reply] = []
        self.deadlines: Deadlines[str] = Deadlines()
        self.loaded_at: Moment | None = None

    # The port

    def encode(self, record: tuple[str, str | None]) -> tuple[bytes, bytes | None]:
        name, value = record
        return name.encode(), None if value is None else value.encode()

    def decode(self, key: bytes, value: bytes | None) -> tuple[str, str | None] | None:
        return None if key.startswith(b"?") else (key.decode(), None if value is None else value.decode())

    def apply(self, record: tuple[str, str | None], producer: Producer | None) -> None:
        name, value = record
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def apply_marker(self, producer: Producer, *, is_commit: bool) -> None:
        self.markers.append((producer, is_commit))

    def on_loaded(self, moment: Moment) -> Decision:
        self.loaded_at = moment
        return NOTHING

    def parked(self) -> list[Reply]:
        waiting, self.waiting = self.waiting, []
        return waiting

    @property
    def next_deadline_ms(self) -> int | None:
        return self.deadlines.next_ms

    def on_time(self, moment: Moment) -> Iterator[Decision]:
        for name in self.deadlines.pop_due(moment.ms):
            yield Decision(records=[(name, None)])

    # Events

    def put(self, reply: Reply, name: str, value: str) -> Decision:
        waiting = self.parked()
        return Decision([(name, value)], [(reply, "stored"), *((one, "changed") for one in waiting)])

    def put_for(self, reply: Reply, name: str, value: str, moment: Moment, ttl_ms: int) -> Decision:
        self.deadlines.set(name, moment.ms + ttl_ms)
        return self.put(reply, name, value)

    def wait(self, reply: Reply) -> Decision:
        self.waiting.append(reply)
        return NOTHING


class Bench:
    """A driver in a world of virtual time."""

    def __init__(self, journal: MemoryJournal, world: World) -> None:
        self.journal = journal
        self.world = world
        self.performed: list[Any] = []
        self.shard = Registers()
        self.host = world.host("broker")
        runtime = self.host.runtime
        self.clock = runtime.clock
        self.driver: Driver[Registers] = Driver(
            "registers-0",
            journal,
            self._make,
            runtime.tasks,
            runtime.clock,
            write_timeout_ms=5000,
            perform=self.performed.append,
        )
        self._tasks = runtime.tasks

    def stop_for(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT do."""
        self.host.pause()
        self.sleep(seconds)
        self.host.go_on()

    def _make(self) -> Registers:
        self.shard = Registers()
        return self.shard

    def load(self) -> Bench:
        self.start_loading()
        self.sleep(0.01)
        return self

    def start_loading(self) -> None:
        self._tasks.spawn(self.driver.load(), name="load")

    def sleep(self, seconds: float) -> None:
        self.world.run(self.world.sleep(seconds))

    def put(self, name: str, value: str) -> Reply:
        reply = new_reply()
        self.driver.write(lambda shard, _: shard.put(reply, name, value), reply)
        return reply

    def put_for(self, name: str, value: str, ttl_ms: int) -> Reply:
        reply = new_reply()
        self.driver.write(lambda shard, moment: shard.put_for(reply, name, value, moment, ttl_ms), reply)
        return reply

    def decide(self, decision: Decision, reply: Reply | None = None) -> None:
        self.driver.write(lambda *_: decision, reply or new_reply())

    def wait(self) -> Reply:
        reply = new_reply()
        self.driver.write(lambda shard, _: shard.wait(reply), reply)
        return reply

    def get(self, name: str) -> Reply:
        reply = new_reply()
        self.driver.read(lambda shard, _: shard.values.get(name), reply)
        return reply


def new_reply() -> Reply:
    return Reply(lambda error: error)
