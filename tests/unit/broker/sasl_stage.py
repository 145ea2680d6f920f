"""A broker with a SASL listener on a simulated host, and clients that say exactly what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.controller.users import Upsertion
from moldau.runtime.ports import Runtime, Stream
from moldau.security.sasl.client import Dialogue, Login
from moldau.security.sasl.credentials import MECHANISMS
from moldau.sim.world import World
from moldau.store.memory import MemoryStore, Tree
from moldau.wire.codec import decode_response, encode_request
from moldau.wire.frames import SIZE, parse_response_header, request_frame

PORT = 9092
PASSWORD = "alice's secret"
PLAIN_LINE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="admin\'s secret" user_admin="admin\'s secret" user_alice="{PASSWORD}";'
)
SETTINGS = {
    "listeners": f"SASL_PLAINTEXT://:{PORT},PLAINTEXT://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/data",
    "moldau.http.port": "-1",
    "offsets.topic.replication.factor": "1",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_LINE,
}
API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
SOFTWARE = SimpleNamespace(client_software_name="test", client_software_version="1")
TIMEOUT_S = 100.0


class Gone(Exception):
    """The broker has ended the connection."""


class Client:
    """One connection, byte by byte."""

    def __init__(self, runtime: Runtime, stream: Stream) -> None:
        self.runtime = runtime
        self._stream = stream
        self._received = bytearray()
        self._is_ended = False
        self._news = asyncio.Event()
        self._next_id = 0
        stream.watch_readable(self._on_readable)

    @classmethod
    async def connect(cls, runtime: Runtime, port: int = PORT) -> Client:
        return cls(runtime, await runtime.net.connect("broker", port, timeout_s=5))

    def _on_readable(self) -> None:
        buffer = bytearray(65536)
        try:
            count = self._stream.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        self._received += buffer[:count]
        if not count:
            self._is_ended = True
            self._stream.unwatch_readable()
        self._news.set()

    def send(self, data: bytes) -> None:
        """As much as the network takes at once, which is enough here."""
        while data:
            data = data[self._stream.send(data) :]

    async def receive(self, size: int) -> bytes:
        """Gone where the connection has ended before."""
        while len(self._received) < size:
            if self._is_ended:
                raise Gone(bytes(self._received))
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), TIMEOUT_S)
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    async def frame(self) -> bytes:
        return await self.receive(SIZE.unpack(await self.receive(4))[0])

    async def ended(self) -> bool:
        """Whether the broker ends it, saying nothing more."""
        try:
            await self.receive(1)
        except Gone:
            return True
        return False

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        self._next_id += 1
        body = encode_request(api_key, version, SimpleNamespace(**fields))
        self.send(request_frame(api_key, version, self._next_id, "test", body))
        frame = memoryview(await self.frame())
        correlation_id, position = parse_response_header(frame, api_key, version)
        assert correlation_id == self._next_id
        return decode_response(api_key, version, frame, position)

    async def versions(self, version: int = 3) -> Any:
        return await self.ask(API_VERSIONS, version, **vars(SOFTWARE))

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        return await self.ask(HANDSHAKE, version, mechanism=mechanism)

    async def authenticate(self, message: bytes, version: int = 2) -> Any:
        return await self.ask(AUTHENTICATE, version, auth_bytes=message)

    async def metadata(self) -> Any:
        return await self.ask(
            METADATA,
            9,
            topics=(),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    async def log_in(self, mechanism: str, user: str = "alice", password: str = PASSWORD) -> Any:
        """The last answer to SaslAuthenticate."""
        await self.versions()
        shaken = await self.handshake(mechanism)
        assert not shaken.error_code
        return await self.say(Login(mechanism, user, password).messages(self.runtime.random.bytes(18)))

    async def say(self, dialogue: Dialogue, version: int = 2) -> Any:
        message = next(dialogue)
        while True:
            answer = await self.authenticate(message, version)
            if answer.error_code:
                return answer
            try:
                message = dialogue.send(answer.auth_bytes)
            except StopIteration:
                return answer

    def close(self) -> None:
        self._stream.close()


class Stage:
    def __init__(self, world: World, **settings: str) -> None:
        self.world = world
        self.host = world.host("broker")
        self.settings = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        self.broker: Broker
        self.broker_options: dict[str, Any] = {}

    async def start(self) -> Broker:
        runtime = self.host.runtime
        config = BrokerConfig.parse(self.settings)
        store = MemoryStore(Tree(), runtime.tasks)
        self.broker = Broker(config, runtime, store, **self.broker_options)
        await runtime.tasks.spawn(self.broker.start(), name="start")
        for mechanism in MECHANISMS:
            (outcome,) = await self.broker.controller.alter_users(
                [], [upsertion("alice", PASSWORD, mechanism)]
            )
            assert not outcome.error
        return self.broker

    async def client(self, host: str = "client", port: int = PORT) -> Client:
        if host not in self.world.hosts:
            self.world.host(host)
        runtime = self.world.hosts[host].runtime
        return await runtime.tasks.spawn(Client.connect(runtime, port), name="connect")


def upsertion(user: str, password: str, mechanism: str, iterations: int = 4096) -> Upsertion:
    one, salt = MECHANISMS[mechanism], b"salt of " + user.encode()
    salted = one.salted(password, salt, iterations)
    return Upsertion(user, int(one), iterations, salt, salted)


def played(
    scene: Callable[[Stage], Coroutine[Any, Any, None]],
    *,
    before: Callable[[Stage], None] = lambda _: None,
    **settings: str,
) -> Stage:
    """Play a scene in a world of its own; whatever fails unseen fails the test."""
    with World(1) as world:
        stage = Stage(world, **settings)
        before(stage)

        async def all_of_it() -> None:
            await stage.start()
            await scene(stage)

        world.run(all_of_it())
        assert not world.failures
        return stage
