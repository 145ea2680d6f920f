"""From a frame to the handler of its API, and from the handler's result to an answer.

A handler module declares `API_KEY`, `VERSIONS = (min, max)` and either
- `handle(broker, context, request)`, sync or async: gets the decoded request and a role of the broker
  (`broker.interface`), returns an answer (`broker.answers`) or a coordinator's `Reply` that will have it; or
- `serve(broker, connection, frame, position, version, correlation_id)`: gets the raw frame, returns the whole answer,
  or None where it holds a slot of the connection or there is no answer. Only the data path needs it.

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
from moldau.wire.frames import WireError, client_id_of, parse_request_header, response_frame

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


def routes(modules: Iterable[ModuleType]) -> dict[int, Route]:
    table: dict[int, Route] = {}
    for module in modules:
        key: int = module.API_KEY
        low, high = module.VERSIONS
        table[key] = Route(
            api_key=key,
            name=APIS[key].name,
            min_version=low,
            max_version=high,
            advertised_min_version=getattr(module, "ADVERTISED_MIN_VERSION", low),
            handle=getattr(module, "handle", None),
            serve=getattr(module, "serve", None),
        )
    return dict(sorted(table.items()))


class Dispatcher:
    def __init__(self, broker: ServingBroker, table: dict[int, Route]) -> None:
        self._broker = broker
        self._tasks = broker.runtime.tasks
        self._metrics = broker.metrics
        self._requests: dict[str, int] = broker.metrics.requests
        self.table = table
        for route in table.values():
            self._requests[route.name] = 0

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
        return self._handle(connection, route, version, correlation_id, client_id, request)

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
        raise WireError(f"{name} version {version} is not served")
