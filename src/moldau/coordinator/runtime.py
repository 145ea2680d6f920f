"""A coordinator on this broker: the shards of one internal topic that this broker leads, and the way to them by key.

Groups and transactions are each one `CoordinatorRuntime` over their own topic and state machine. A key (a group id, a
transactional id) belongs to one partition of the topic; whoever leads it coordinates. A request for a key whose
partition is not led here gets NOT_COORDINATOR, and the client looks for the coordinator again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Generic

from moldau.base.errors import ErrorCode
from moldau.coordinator.driver import Driver, State, TakesLong
from moldau.coordinator.java import java_hash
from moldau.coordinator.journal import Journal
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment, Producer, ShardT
from moldau.runtime.ports import Clock, Tasks

Failed = Callable[[ErrorCode], Any]
"""Makes an API's answer from an error of the coordinator."""


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's choice, which clients and tools compute too: Java's hash of the text, without its sign."""
    value = java_hash(key)
    if value >= 1 << 31:
        value = (1 << 32) - value
    return 0 if value == 1 << 31 else value % partition_count


class CoordinatorRuntime(Generic[ShardT]):
    """`partition_count` is the topic's, 0 while there is none, and `no_topic` what requests get then;
    `perform(index, effect)` does what decisions ask for.
    """

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[int], ShardT],
        tasks: Tasks,
        clock: Clock,
        *,
        partition_count: Callable[[], int],
        no_topic: Callable[[], ErrorCode] = lambda: ErrorCode.not_coordinator,
        write_timeout_ms: int,
        perform: Callable[[int, Any], object] = lambda _index, _effect: None,
    ) -> None:
        self.topic = topic
        self._make_shard = make_shard
        self._tasks = tasks
        self._clock = clock
        self._partition_count = partition_count
        self._no_topic = no_topic
        self._write_timeout_ms = write_timeout_ms
        self._perform = perform
        self._drivers: dict[int, Driver[ShardT]] = {}
        self._thread = asyncio.Lock()
        """Of what takes long: the disk needs threads, too."""

    # ---- leadership -----------------------------------------------------------------------------------------

    def lead(self, index: int, journal: Journal) -> None:
        """This broker leads a partition from now on (or leads it in a new epoch): load it."""
        self.resign(index)
        driver = Driver(
            f"{self.topic}-{index}",
            journal,
            lambda: self._make_shard(index),
            self._tasks,
            self._clock,
            write_timeout_ms=self._write_timeout_ms,
            perform=lambda effect: self._perform(index, effect),
            thread=self._thread,
        )
        self._drivers[index] = driver
        self._tasks.spawn(driver.load(), name=f"load {driver.name}")

    def resign(self, index: int) -> None:
        """This broker does not lead a partition any more. Fine where it never did."""
        driver = self._drivers.pop(index, None)
        if driver is not None:
            driver.close()

    def close(self) -> None:
        for index in list(self._drivers):
            self.resign(index)

    def leads(self, index: int) -> bool:
        return index in self._drivers

    def leads_key(self, key: str) -> bool:
        count = self._partition_count()
        return count > 0 and self.leads(partition_for(key, count))

    @property
    def led(self) -> list[int]:
        """The partitions that this broker coordinates, those that are still being loaded included."""
        return sorted(self._drivers)

    def shard(self, index: int) -> ShardT | None:
        """A partition's state as it is, for a look within this turn of the loop; None where it cannot be had now."""
        driver = self._drivers.get(index)
        return None if driver is None else driver.shard_now

    def states(self) -> Counter[str]:
        """How many partitions are led here, and are loaded."""
        return Counter(driver.state.value for driver in self._drivers.values())

    @property
    def is_loading(self) -> bool:
        return any(driver.state is State.LOADING for driver in self._drivers.values())

    # ---- requests -------------------------------------------------------------------------------------------

    def write(
        self,
        key: str,
        decide: Callable[[ShardT, Moment, Reply], Decision],
        failed: Failed,
        takes_long: TakesLong[ShardT] | None = None,
    ) -> Reply:
        """An event for the shard of a key. The reply is answered in the decision, or parked by the shard.

        Where it `takes_long`, by a look at the shard, a thread decides on it.
        """
        reply = Reply(failed)
        driver = self._driver(key, reply)
        if driver is not None:
            driver.write(lambda shard, moment: decide(shard, moment, reply), reply, takes_long)
        return reply

    def read(
        self,
        key: str,
        look: Callable[[ShardT, Moment], Any],
        failed: Failed,
        takes_long: TakesLong[ShardT] | None = None,
    ) -> Reply:
        """A look at the state of a key, answered with what `look` returns when all of that is committed."""
        reply = Reply(failed)
        driver = self._driver(key, reply)
        if driver is not None:
            driver.read(look, reply, takes_long)
        return reply

    def read_all(self, look: Callable[[ShardT, Moment], Any], failed: Failed) -> list[Reply]:
        """The same of every shard that is led here."""
        replies = []
        for index in self.led:
            reply = Reply(failed)
            self._drivers[index].read(look, reply)
            replies.append(reply)
        return replies

    def note_all(
        self, decide: Callable[[ShardT, Moment], Decision], takes_long: TakesLong[ShardT] | None = None
    ) -> None:
        """An event of the cluster (a topic was deleted) for every shard that is led here; nobody waits for it."""
        for index in self.led:
            self._drivers[index].note(decide, takes_long)

    def on_marker(
        self,
        index: int,
        producer: Producer,
        *,
        is_commit: bool,
        takes_long: TakesLong[ShardT] | None = None,
    ) -> None:
        """A transaction's marker was appended to one of the partitions."""
        driver = self._drivers.get(index)
        if driver is not None:
            driver.apply_marker(producer, is_commit=is_commit, takes_long=takes_long)

    def _driver(self, key: str, reply: Reply) -> Driver[ShardT] | None:
        count = self._partition_count()
        driver = self._drivers.get(partition_for(key, count)) if count else None
        if driver is None:
            reply.fail(ErrorCode.not_coordinator if count else self._no_topic())
        return driver
