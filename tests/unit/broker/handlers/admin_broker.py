"""As much of a broker as the admin handlers use, asked through the real codecs in any version."""

from __future__ import annotations

import asyncio
from inspect import iscoroutine, isgenerator
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.broker.guard import Guard
from moldau.broker.kept_answers import KeptAnswers, Packed
from moldau.config.broker import BrokerConfig
from moldau.controller.brokers import Registration
from moldau.controller.controller import Controller
from moldau.controller.persistence import PersistentImage
from moldau.controller.topics import NewTopic
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import Delta
from moldau.runtime.line import whole
from moldau.sim.random import SimRandom
from moldau.store.memory import MemoryStore
from moldau.wire.codec import decode_request, decode_response, encode_request, encode_response


class AdminBroker:
    node_id = 1

    def __init__(self, **settings: str) -> None:
        self._start = BrokerConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
        store = MemoryStore()
        state = asyncio.run(PersistentImage.take_over(store, SimRandom(1), 1))
        self.controller = Controller(state, SimRandom(2), self, self, on_delta=self._on_delta)
        asyncio.run(self._register())
        self.free_bytes = 1000
        self.offline: set[TopicPartition] = set()
        self.log_manager = SimpleNamespace(
            folders=[SimpleNamespace(path=path, failure=None) for path in ("/one", "/two")],
            moves=SimpleNamespace(under_way={}),
        )
        self.runtime: Any = SimpleNamespace(
            tasks=self,
            disk=SimpleNamespace(free_bytes=lambda path: self.free_bytes, total_bytes=lambda path: 4000),
        )
        self.partitions: dict[TopicPartition, Any] = {}
        self.active_controller = self.controller
        self.channel = self
        self.kept_answers = KeptAnswers()
        self.guard: Guard | None = None
        self.throttling = None

    async def create_topics(self, topics: Any) -> list[tuple[Any, str | None]]:
        """As the channel to the controller does it."""
        outcomes = await self.controller.create_topics(topics)
        return [(outcome.error, outcome.message) for outcome in outcomes]

    async def next_producer_id(self) -> int:
        first, _ = await self.controller.allocate_producer_ids()
        return first

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def config(self) -> BrokerConfig:
        configs = self.image.broker_configs
        return self._start.with_dynamic(configs.get("", {}), configs.get("1", {}))

    async def in_thread(self, work: Any, *args: Any) -> Any:
        return work(*args)

    async def _register(self) -> None:
        registration = Registration(1, UUID(int=1), {"PLAINTEXT": None}, rack="rack-1")
        epoch = await self.controller.register_broker(registration)
        await self.controller.heartbeat(1, epoch, self.image.position)

    def call_later(self, delay_s: float, callback: Any, *args: Any) -> Any:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    def spawn(self, work: Any, *, name: str) -> Any:
        return asyncio.ensure_future(work)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def _on_delta(self, delta: Delta) -> None:
        self.controller.applied(1, delta.position)
        for name, topic in self.image.topics.items():
            for index in range(len(topic.partitions)):
                place = TopicPartition(name, index)
                log = SimpleNamespace(
                    folder=f"/{'one' if index % 2 == 0 else 'two'}/{place}", size_bytes=lambda: 7
                )
                self.partitions.setdefault(place, SimpleNamespace(log=log))

    def lose_disk(self, place: TopicPartition) -> None:
        epoch = self.image.brokers[1].epoch
        asyncio.run(self.controller.report_replicas(1, epoch, offline=[place]))
        self.offline.add(place)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = [(key.replace("_", "."), value) for key, value in configs.items()]
        (outcome,) = asyncio.run(
            self.controller.create_topics([NewTopic(name, partitions, configs=settings)])
        )
        assert outcome.record is not None, outcome.message

    def ask(
        self,
        handler: ModuleType,
        version: int,
        listener_name: str = "PLAINTEXT",
        local_address: tuple[str, int] = ("10.0.0.5", 9092),
        principal: str = "User:ANONYMOUS",
        **fields: Any,
    ) -> Any:
        """The answer as a client of that version reads it."""
        low, high = handler.VERSIONS
        assert low <= version <= high
        body = encode_request(handler.API_KEY, version, SimpleNamespace(**fields))
        request = decode_request(handler.API_KEY, version, memoryview(body), 0)
        context = SimpleNamespace(
            version=version,
            listener_name=listener_name,
            local_address=local_address,
            client_id="test",
            principal=principal,
            client_host="10.0.0.9",
            breathe=lambda: asyncio.sleep(0),
        )
        response = handler.handle(self, context, request)
        if isgenerator(response):
            response = whole(response)
        if iscoroutine(response):
            response = asyncio.run(response)
        is_packed = isinstance(response, Packed)
        answer = (
            b"".join(response.pieces) if is_packed else encode_response(handler.API_KEY, version, response)
        )
        return decode_response(handler.API_KEY, version, memoryview(answer), 0)


def versions(handler: ModuleType) -> range:
    low, high = handler.VERSIONS
    return range(low, high + 1)
