"""Much that is right is done: a topic of 10,000 partitions, and a reassignment of them all."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cluster.support import wait_until
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.controller.reassignments import Reassignment
from moldau.controller.topics import NewTopic
from moldau.store.memory import MemoryStore, Tree
from moldau.testing.loop_thread import LoopThread

T = TypeVar("T")

MUCH = 10_000
PATIENCE_S = 200.0


class Stage:
    """Brokers of one cluster on a loop of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = LoopThread("brokers")
        self._tree = Tree()
        self.brokers: list[Broker] = []

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._thread.call(work, timeout_s=PATIENCE_S)

    async def start(self, count: int) -> None:
        for node_id in range(1, count + 1):
            settings = {
                "node.id": str(node_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(self._folder / str(node_id)),
            }
            store = MemoryStore(self._tree, holder=str(node_id))
            broker = Broker(BrokerConfig.parse(settings), self._thread.runtime, store)
            self.brokers.append(broker)
            await self._thread.runtime.tasks.spawn(broker.start(), name=f"start {node_id}")

    @property
    def controller(self) -> Any:
        return next(broker.active_controller for broker in self.brokers if broker.active_controller)

    def held(self) -> list[int]:
        return [len(broker.partitions) for broker in self.brokers]

    async def stop(self) -> None:
        for broker in self.brokers:
            await broker.stop()

    def close(self) -> None:
        self._thread.close()


@contextmanager
def brokers(folder: Path, count: int) -> Iterator[Stage]:
    stage = Stage(folder)
    try:
        stage.call(lambda: stage.start(count))
        yield stage
        assert all(broker.failure is None and not broker.offline for broker in stage.brokers)
        stage.call(stage.stop)
    finally:
        stage.close()


def errors(outcomes: list[Any]) -> set[ErrorCode]:
    return {outcome.error for outcome in outcomes}


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000, pytest.param(MUCH, marks=pytest.mark.long)])
def test_all_partitions_of_a_wide_topic_move_to_another_broker(tmp_path: Path, count: int) -> None:
    """`unit/controller/test_many.py` decides on as many; here they are copied, too."""
    with brokers(tmp_path, 2) as stage:
        here = [(number, (1,)) for number in range(count)]
        made = stage.call(lambda: stage.controller.create_topics([NewTopic("wide", assignments=here)]))
        assert errors(made) == {ErrorCode.none}
        wait_until(lambda: stage.held() == [count, 0], PATIENCE_S, "the topic to be there")
        moves = [Reassignment(TopicPartition("wide", number), (2,)) for number in range(count)]
        assert errors(stage.call(lambda: stage.controller.alter_reassignments(moves))) == {ErrorCode.none}
        wait_until(lambda: stage.held() == [0, count], PATIENCE_S, "all partitions to have moved")
        states = stage.controller.image.topics["wide"].partitions
        assert {(state.leader, state.replicas, state.isr) for state in states} == {(2, (2,), (2,))}
