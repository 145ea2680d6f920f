"""From a frame to the handler of its API, and from the handler's result to an answer.

A handler module declares `API_KEY`, `VERSIONS = (min, max)` and either
- `handle(broker, context, request)`, sync or async: gets the decoded request and a role of the broker
  (`broker.interface`), returns an answer (`broker.answers`) or a coordinator's `Reply` that will have it; or
- `serve(broker, connection, frame, position, version, correlation_id)`: gets the raw frame, returns the whole answer,
  or None where it holds a slot of the connection or there is no answer. Only the data path needs it.

A module says `IS_INTERNAL = True` where its API is for brokers only, and has `is_forwarded(request)` where its requests
are the controller's to decide: a broker that is not the controller sends them there in an Envelope.

The table made here is what ApiVersions advertises and docs/protocol-support.md lists: there is no second one.
An API or version outside it ends the connection, as Kafka does it, but for ApiVersions, which always gets an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from inspect import iscoroutine
from types import ModuleType
from typing import Any, NamedTuple

from moldau.base.invariant import InvariantBroken
from moldau.base.limits import DECODED_REQUEST_BYTES_MAX
from moldau.broker.connection import Answer, Connection, Slot
from moldau.broker.interface import ServingBroker
from moldau.coordinator.reply import Reply
from moldau.runtime.ports import Address
from moldau.wire.apis import API_VERSIONS, APIS
from moldau.wire.codec import decode_request, encode_response
from moldau.wire.frames import SIZE, WireError, client_id_of, parse_request_header, response_frame

log = logging.getLogger(__name__)


class Route(NamedTuple):
    """One API that this broker serves."""

    api_key: int
    name: str
    min_version: int
    max_version: int
    advertised_min_version: int
    handle: Callable[..., Any] | None
    serve: Callable[..., Answer | None] | None
    is_internal: bool = False
    """Between brokers only: it is not advertised to clients, and served before the broker serves clients."""
    is_forwarded: Callable[[Any], bool] | None = None
    """Whether a request is for the controller: one that comes elsewhere is forwarded there (KIP-590)."""


@dataclass(frozen=True, slots=True)
class Context:
    """Who asks, and how: what a handler may want to know beside the request."""

    version: int
    client_id: str | None
    connection: Connection

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def local_address(self) -> Address:
        """The address that the client connected to."""
        return self.connection.stream.local

    @property
    def client_host(self) -> str:
        return self.connection.stream.peer[0]

    def within(self, version: int, client_id: str | None) -> Context:
        """Of a request that came within this one (Envelope)."""
        return Context(version, client_id, self.connection)


def routes(modules: Iterable[ModuleType]) -> dict[int, Route]:
    table: dict[int, Route] = {}
    for module in modules:
        key: int = module.API_KEY
        low, high = module.VERSIONS
        table[key] = Route(
            api_key=key,
            name=APIS[key].name if key in APIS else module.NAME,
            min_version=low,
            max_version=high,
            advertised_min_version=getattr(module, "ADVERTISED_MIN_VERSION", low),
            handle=getattr(module, "handle", None),
            serve=getattr(module, "serve", None),
            is_internal=getattr(module, "IS_INTERNAL", False),
            is_forwarded=getattr(module, "is_forwarded", None),
        )
    return dict(sorted(table.items()))


class Dispatcher:
    def __init__(self, broker: ServingBroker, table: dict[int, Route]) -> None:
        self._broker = broker
        self._tasks = broker.runtime.tasks
        self._metrics = broker.metrics
        self._requests: dict[str, int] = broker.metrics.requests
        self._whole_table = table
        self.table = {key: route for key, route in table.items() if route.is_internal or key == API_VERSIONS}
        """What is served now: before the broker is ready, only what other brokers may need of it."""
        for route in table.values():
            self._requests[route.name] = 0

    def serve_clients(self) -> None:
        """The broker is ready."""
        self.table = self._whole_table

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | None:
        api_key, version, correlation_id, client_id_stop, position = parse_request_header(frame)
        route = self.table.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            return self._unsupported(connection, api_key, version, correlation_id)
        self._requests[route.name] += 1
        if route.serve is not None:
            return route.serve(self._broker, connection, frame, position, version, correlation_id)
        client_id = client_id_of(frame, client_id_stop)
        if len(frame) > DECODED_REQUEST_BYTES_MAX:
            raise WireError(f"{route.name} request of {len(frame)} bytes")
        request = decode_request(api_key, version, frame, position)
        if self._is_for_another(route, request):
            slot = connection.park()
            context = Context(version, client_id, connection)
            work = self._forward(slot, route, context, correlation_id, bytes(frame), request)
            self._tasks.spawn(work, name=f"forward {route.name}")
            return None
        return self._handle(connection, route, version, correlation_id, client_id, request)

    def _is_for_another(self, route: Route, request: object) -> bool:
        """Whether the controller is to answer, and is not here."""
        is_forwarded = route.is_forwarded
        return is_forwarded is not None and self._broker.active_controller is None and is_forwarded(request)

    async def _forward(
        self, slot: Slot, route: Route, context: Context, correlation_id: int, frame: bytes, request: object
    ) -> None:
        """Have the controller answer, wherever it is by then."""
        answer = await self._broker.channel.forward(
            frame, context.principal.encode(), context.client_host.encode()
        )
        if answer is not None:
            slot.fill(SIZE.pack(len(answer)) + answer)
        elif self._broker.active_controller is not None:
            work = self._broker.answer(route, context, request)
            await self._finish(slot, route, context.version, correlation_id, work)
        else:
            slot.abandon("the controller cannot be asked")

    def _handle(
        self,
        connection: Connection,
        route: Route,
        version: int,
        correlation_id: int,
        client_id: str | None,
        request: object,
    ) -> Answer | None:
        assert route.handle is not None
        response = route.handle(self._broker, Context(version, client_id, connection), request)
        if type(response) is Reply:
            if not response.is_answered:
                slot = connection.park()
                response.then(lambda answer: self._fill(slot, route, version, correlation_id, answer))
                return None
            response = response.response
        if iscoroutine(response):
            slot = connection.park()
            work = self._finish(slot, route, version, correlation_id, response)
            self._tasks.spawn(work, name=f"{route.name} v{version}")
            return None
        return response_frame(
            route.api_key, version, correlation_id, encode_response(route.api_key, version, response)
        )

    def _fill(self, slot: Slot, route: Route, version: int, correlation_id: int, response: Any) -> None:
        """The answer of a request that was parked as data."""
        try:
            body = encode_response(route.api_key, version, response)
        except Exception:
            log.exception("%s v%d failed; closing the connection", route.name, version)
            slot.abandon("a request failed")
            return
        slot.fill(response_frame(route.api_key, version, correlation_id, body))

    async def _finish(
        self, slot: Slot, route: Route, version: int, correlation_id: int, work: Coroutine[Any, Any, Any]
    ) -> None:
        try:
            response = await work
            body = encode_response(route.api_key, version, response)
        except InvariantBroken as error:
            self._broker.fail(error)
            return
        except Exception:
            log.exception("%s v%d failed; closing the connection", route.name, version)
            slot.abandon("a request failed")
            return
        slot.fill(response_frame(route.api_key, version, correlation_id, body))

    def _unsupported(
        self, connection: Connection, api_key: int, version: int, correlation_id: int
    ) -> Answer | None:
        self._metrics.unsupported_requests += 1
        if api_key == API_VERSIONS:
            # Whatever the client's version is, it can read a v0 body, and learns from it what to ask for.
            route = self.table[API_VERSIONS]
            return self._handle(connection, route, 0, correlation_id, None, None)
        name = APIS[api_key].name if api_key in APIS else f"API {api_key}"
        if self.table is not self._whole_table:
            connection.close("the broker is not ready yet")
            return None
        raise WireError(f"{name} version {version} is not served")
