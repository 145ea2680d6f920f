"""Three brokers of one cluster in this process, on free ports, for clients of other makers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.store.memory import MemoryStore, Tree
from moldau.testing.loop_thread import LoopThread

from .trio import IDS

TIMEOUT_S = 60.0


@contextmanager
def three_brokers(
    folder: Path, settings: Callable[[int], Mapping[str, str]] = lambda _: {}
) -> Iterator[dict[int, Broker]]:
    thread = LoopThread("three brokers")
    tree = Tree()
    brokers: dict[int, Broker] = {}

    async def start() -> None:
        starting = []
        for node_id in IDS:
            own = {
                "node.id": str(node_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(folder / str(node_id)),
                "log.retention.ms": "-1",
            }
            config = BrokerConfig.parse(own | dict(settings(node_id)))
            broker = Broker(config, thread.runtime, MemoryStore(tree, holder=str(node_id)))
            brokers[node_id] = broker
            starting.append(thread.runtime.tasks.spawn(broker.start(), name=f"start {node_id}"))
        for task in starting:
            await task

    async def stop() -> None:
        for broker in brokers.values():
            await broker.stop()

    try:
        thread.call(start, timeout_s=TIMEOUT_S)
        yield brokers
        thread.call(stop, timeout_s=TIMEOUT_S)
    finally:
        thread.close()
