"""From a frame to the handler of its API, and from the handler's result to an answer.

A handler module declares `API_KEY`, `VERSIONS = (min, max)` and either
- `handle(broker, context, request)`: gets the decoded request and a role of the broker (`broker.interface`), returns an
  answer (`broker.answers`; `Packed`: one whose bytes were kept), a coordinator's `Reply` that will have it, or a
  coroutine. What takes long for many
  elements pauses: a coroutine by `await context.breathe()`, and a handler that is a generator, and returns any of
  these, by `yield`; or
- `serve(broker, connection, frame, position, version, correlation_id)`: gets the raw frame, returns the whole answer,
  or None where it holds a slot of the connection or there is no answer. Only the data path needs it.

A module says `IS_INTERNAL = True` where its API is for brokers only, and has `is_forwarded(request)` where its requests
are the controller's to decide: a broker that is not the controller sends them there in an Envelope.

One loop serves everyone (`runtime.line`). A request of up to INLINE_REQUEST_BYTES_MAX is decoded at once; a handler
that pauses gets FIRST_SLICE_S, and is answered at once if that is enough. Everything else stands in line: larger
requests from their first byte on, the rest of longer answers. Meanwhile their connection is served nothing else.

The table in `handlers` is what ApiVersions advertises and docs/protocol-support.md lists: there is no second one.
An API or version outside it ends the connection, as Kafka does it, but for ApiVersions, which always gets an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from importlib import import_module
from inspect import iscoroutine
from types import GeneratorType
from typing import Any, NamedTuple, Protocol, cast

from moldau.base.invariant import InvariantBroken
from moldau.base.limits import DECODED_REQUEST_BYTES_MAX, FIRST_SLICE_S, INLINE_REQUEST_BYTES_MAX
from moldau.broker.connection import Connection
from moldau.broker.interface import Request, RequestContext, ServingBroker
from moldau.broker.kept_answers import Packed
from moldau.broker.metrics.counters import Metrics
from moldau.broker.slot import Answer, Slot
from moldau.broker.throttling import metered
from moldau.coordinator.reply import Reply
from moldau.runtime.line import Line, Pace, Slices, in_line
from moldau.runtime.ports import Address
from moldau.wire.apis import API_VERSIONS, APIS
from moldau.wire.codec import decode_request, decoding, encode_response, encoding
from moldau.wire.error_codes import counter_of_errors, sliced_counter_of_errors
from moldau.wire.frames import (
    SIZE,
    WireError,
    client_id_of,
    parse_request_header,
    response_frame,
    response_header,
)
from moldau.wire.writer import TooLarge

log = logging.getLogger(__name__)

HANDLERS = "moldau.broker.handlers"
WRITE_TXN_MARKERS = 27


class Route:
    """One API that this broker serves. The module of its handler is imported when `handle`, `serve` or `is_forwarded`
    is first asked for.
    """

    __slots__ = (
        "advertised_min_version",
        "api_key",
        "handle",
        "is_forwarded",
        "is_internal",
        "is_unlimited",
        "max_version",
        "min_version",
        "module",
        "name",
        "serve",
    )

    handle: Callable[..., Any] | None
    serve: Callable[..., Answer | None] | None
    is_forwarded: Callable[[Any], bool] | None
    """Whether a request is for the controller: one that comes elsewhere is forwarded there (KIP-590)."""

    def __init__(
        self,
        module: str,
        api_key: int,
        versions: tuple[int, int],
        *,
        advertised_min_version: int | None = None,
        is_internal: bool = False,
        name: str = "",
    ) -> None:
        """`is_internal`: between brokers only (`insiders`). It is not advertised to clients, and served before them."""
        self.module = module
        self.api_key = api_key
        self.min_version, self.max_version = versions
        self.advertised_min_version = (
            self.min_version if advertised_min_version is None else advertised_min_version
        )
        self.is_internal = is_internal
        self.is_unlimited = is_internal or api_key == WRITE_TXN_MARKERS
        """Whether it counts for no quota."""
        self.name = name or APIS[api_key].name

    def __getattr__(self, attribute: str) -> Any:
        """Of what the handler's module has, when it is not imported yet."""
        if attribute not in ("handle", "serve", "is_forwarded"):
            raise AttributeError(attribute)
        module = import_module(f"{HANDLERS}.{self.module}")
        self.handle = getattr(module, "handle", None)
        self.serve = getattr(module, "serve", None)
        self.is_forwarded = getattr(module, "is_forwarded", None)
        return getattr(self, attribute)


class Asked(NamedTuple):
    """A request as far as its answer is concerned."""

    route: Route
    version: int
    correlation_id: int
    client_id: str | None

    def frame(self, body: bytes) -> bytes:
        return response_frame(self.route.api_key, self.version, self.correlation_id, body)

    def frame_of(self, pieces: list[bytes]) -> Answer:
        """A large answer stays in pieces, so that it is in memory once."""
        size = sum(map(len, pieces))
        head = response_header(self.route.api_key, self.version, self.correlation_id)
        return [SIZE.pack(len(head) + size) + head, *pieces]


class Context:
    """Who asks, and how: what a handler may want to know beside the request."""

    __slots__ = ("_pace", "client_host", "client_id", "connection", "principal", "version")

    def __init__(self, version: int, client_id: str | None, connection: Connection) -> None:
        self.version = version
        self.client_id = client_id
        self.connection = connection
        self.principal = connection.principal
        self.client_host = connection.client_host
        self._pace: Pace | None = None

    async def breathe(self) -> None:
        """Awaited between the elements of what may be many: others run where this request has used up its slice."""
        if self._pace is None:
            self._pace = self.connection.pace()
        await self._pace.breathe()

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def local_address(self) -> Address:
        """The address that the client connected to."""
        return self.connection.stream.local

    def within(self, version: int, client_id: str | None, principal: str, client_host: str) -> Context:
        """Of a request that came within this one (Envelope), and who sent it to the broker that has forwarded it."""
        context = Context(version, client_id, self.connection)
        context.principal, context.client_host = principal, client_host
        return context


async def answer_of(broker: ServingBroker, route: Route, context: RequestContext, request: Request) -> Any:
    """What the handler of a route says to a request, whether or not it has to wait for that."""
    assert route.handle is not None
    response = route.handle(broker, context, request)
    if type(response) is GeneratorType:
        response = await in_line(context, response)
    return await response if iscoroutine(response) or type(response) is Reply else response


class Caretaker(Protocol):
    """The broker, as far as it matters that work fails."""

    @property
    def metrics(self) -> Metrics: ...

    @property
    def line(self) -> Line: ...

    def fail(self, error: BaseException) -> None:
        """A broken invariant: the node stops."""
        ...


def guarded(
    broker: Caretaker, slot: Slot, name: str, work: Slices[None], *, is_kept: bool = False
) -> Slices[None]:
    """Work on a request, whose failure ends the connection. Unless it `is_kept`, it ends when the client is gone."""
    meter = slot.connection.meter
    if meter is not None:
        work = metered(work, meter, broker.line.clock.monotonic)
    try:
        for _ in work:
            if not is_kept and not slot.is_wanted:
                return
            yield
    except WireError as error:
        slot.connection.end_malformed(error)
    except TooLarge as error:
        slot.abandon(f"the answer to {name} would take {error}")
    except InvariantBroken as error:
        broker.fail(error)
    except Exception:
        log.exception("%s failed; closing the connection", name)
        slot.abandon("a request failed")


def _pack_then_fill(slot: Slot, packing: Slices[Answer]) -> Slices[None]:
    slot.fill((yield from packing))


def _is_to_come(response: Any) -> bool:
    """Whether the answer is not known yet."""
    return not response.is_answered if type(response) is Reply else iscoroutine(response)


class Dispatcher:
    def __init__(self, broker: ServingBroker, table: dict[int, Route]) -> None:
        self._broker = broker
        self._clock = broker.runtime.clock
        self._tasks = broker.runtime.tasks
        self._line = broker.line
        self._metrics = broker.metrics
        self._figures = {key: broker.metrics.of_api(route.name) for key, route in table.items()}
        self._whole_table = table
        self.table = {key: route for key, route in table.items() if route.is_internal or key == API_VERSIONS}
        """What is served now: before the broker is ready, only what other brokers may need of it."""

    def serve_clients(self) -> None:
        """The broker is ready."""
        self.table = self._whole_table

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | None:
        api_key, version, correlation_id, client_id_stop, position = parse_request_header(frame)
        route = self.table.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            return self._unsupported(connection, api_key, version, correlation_id)
        if route.is_internal and not self._broker.insiders.has(connection):
            connection.close(None)
            return None
        if (throttling := self._broker.throttling) is not None:
            throttling.begin(connection, frame, client_id_stop, route)
        figures = self._figures[api_key]
        figures.requests += 1
        connection.durations = figures.durations
        if route.serve is not None:
            return route.serve(self._broker, connection, frame, position, version, correlation_id)
        asked = Asked(route, version, correlation_id, client_id_of(frame, client_id_stop))
        if len(frame) <= INLINE_REQUEST_BYTES_MAX:
            return self._serve_now(
                connection, asked, frame, decode_request(api_key, version, frame, position)
            )
        if len(frame) > DECODED_REQUEST_BYTES_MAX:
            raise WireError(f"{route.name} request of {len(frame)} bytes")
        frame = connection.lasting(frame)
        slot = connection.park(held_bytes=len(frame))
        self._line.put(
            guarded(self._broker, slot, asked.route.name, self._serve_in_line(slot, asked, frame, position))
        )
        return None

    def _serve_now(
        self, connection: Connection, asked: Asked, frame: memoryview, request: object
    ) -> Answer | None:
        """The answer, or None where it comes later."""
        if asked.route.is_forwarded is not None and self._is_for_another(asked.route, request):
            self._forward(connection.park(), asked, frame, request)
            return None
        response = self._respond(connection, asked, request)
        if type(response) is GeneratorType:
            return self._first_slice(connection, asked, response)
        return self._answer_now(connection, asked, response)

    def _answer_now(self, connection: Connection, asked: Asked, response: Any) -> Answer | None:
        if _is_to_come(response):
            self._fill_later(connection.park(), asked, response)
            return None
        if type(response) is Reply:
            response = response.response
        api_key, version = asked.route.api_key, asked.version
        if (throttling := self._broker.throttling) is not None:
            response = throttling.marked(connection, version, response)
        if type(response) is Packed:
            self._figures[api_key].add_errors(response.errors)
            return asked.frame_of(response.pieces)
        counter_of_errors(api_key, version)(response, self._figures[api_key].errors)
        return asked.frame(encode_response(api_key, version, response))

    def _serve_in_line(self, slot: Slot, asked: Asked, frame: memoryview, position: int) -> Slices[None]:
        """A large request, from its first byte to its answer."""
        request = yield from decoding(asked.route.api_key, asked.version, frame, position)
        if asked.route.is_forwarded is not None and self._is_for_another(asked.route, request):
            self._forward(slot, asked, frame, request)
            return
        response = self._respond(slot.connection, asked, request)
        if type(response) is GeneratorType:
            response = yield from response
        yield from self._answer_in_line(slot, asked, response)

    def _respond(self, connection: Connection, asked: Asked, request: object) -> Any:
        """What the handler says: an answer, a generator or a coroutine that makes it, or a reply that will have it."""
        assert asked.route.handle is not None
        context = Context(asked.version, asked.client_id, connection)
        return asked.route.handle(self._broker, context, request)

    def _fill_later(self, slot: Slot, asked: Asked, response: Reply | Coroutine[Any, Any, Any]) -> None:
        if isinstance(response, Reply):
            response.then(lambda answer: self._fill(slot, asked, answer))
        else:
            name = f"{asked.route.name} v{asked.version}"
            self._tasks.spawn(self._finish(slot, asked, response), name=name)

    def _first_slice(self, connection: Connection, asked: Asked, handling: Slices[Any]) -> Answer | None:
        """The answer of a handler that can pause, if it needs no more than its first slice."""
        monotonic = self._clock.monotonic
        stop_s = monotonic() + self._line.this_turn.share(FIRST_SLICE_S)
        try:
            while monotonic() < stop_s:
                next(handling)
        except StopIteration as end:
            return self._pack_first_slice(connection, asked, end.value)
        slot = connection.park()
        self._line.put(
            guarded(self._broker, slot, asked.route.name, self._handle_then_fill(slot, asked, handling))
        )
        return None

    def _pack_first_slice(self, connection: Connection, asked: Asked, response: Any) -> Answer | None:
        """The same of its answer: what was little to find out may be much to tell."""
        if _is_to_come(response):
            self._fill_later(connection.park(), asked, response)
            return None
        if type(response) is Reply:
            response = response.response
        packing = self._packing(connection, asked, response)
        monotonic = self._clock.monotonic
        stop_s = monotonic() + self._line.this_turn.share(FIRST_SLICE_S)
        try:
            next(packing)
            while monotonic() < stop_s:
                next(packing)
        except StopIteration as end:
            return cast(Answer, end.value)
        except TooLarge as error:
            connection.close(f"the answer to {asked.route.name} would take {error}")
            return None
        slot = connection.park()
        self._line.put(guarded(self._broker, slot, asked.route.name, _pack_then_fill(slot, packing)))
        return None

    def _handle_then_fill(self, slot: Slot, asked: Asked, handling: Slices[Any]) -> Slices[None]:
        response = yield from handling
        yield from self._answer_in_line(slot, asked, response)

    def _answer_in_line(self, slot: Slot, asked: Asked, response: Any) -> Slices[None]:
        if _is_to_come(response):
            self._fill_later(slot, asked, response)
            return
        if type(response) is Reply:
            response = response.response
        yield from _pack_then_fill(slot, self._packing(slot.connection, asked, response))

    def _packing(self, connection: Connection, asked: Asked, response: Any) -> Slices[Answer]:
        api_key, version = asked.route.api_key, asked.version
        if (throttling := self._broker.throttling) is not None:
            response = throttling.marked(connection, version, response)
        if type(response) is Packed:
            self._figures[api_key].add_errors(response.errors)
            return asked.frame_of(response.pieces)
        yield from sliced_counter_of_errors(api_key, version)(response, self._figures[api_key].errors)
        pieces = yield from encoding(api_key, version, response)
        return asked.frame(pieces[0]) if len(pieces) == 1 else asked.frame_of(pieces)

    def _fill(self, slot: Slot, asked: Asked, response: Any) -> None:
        """The answer is known: it is packed at once if that takes no longer than a first slice."""
        filling = _pack_then_fill(slot, self._packing(slot.connection, asked, response))
        packing = guarded(self._broker, slot, asked.route.name, filling)
        monotonic, turn = self._clock.monotonic, self._line.this_turn
        start_s = now_s = monotonic()
        share_s = turn.share(FIRST_SLICE_S)
        for _ in packing:
            now_s = monotonic()
            if now_s - start_s >= share_s:
                self._line.put(packing)
                break
        turn.spend(now_s - start_s)

    async def _finish(self, slot: Slot, asked: Asked, work: Coroutine[Any, Any, Any]) -> None:
        try:
            meter = slot.connection.meter
            response = await self._line.sharing_turns(work, None if meter is None else meter.add)
        except InvariantBroken as error:
            self._broker.fail(error)
        except Exception:
            log.exception("%s v%d failed; closing the connection", asked.route.name, asked.version)
            slot.abandon("a request failed")
        else:
            self._fill(slot, asked, response)

    # ---- not here ---------------------------------------------------------------------------------------------

    def _is_for_another(self, route: Route, request: object) -> bool:
        """Whether the controller is to answer, and is not here."""
        is_forwarded = route.is_forwarded
        return is_forwarded is not None and self._broker.active_controller is None and is_forwarded(request)

    def _forward(self, slot: Slot, asked: Asked, frame: memoryview, request: object) -> None:
        self._tasks.spawn(
            self._forwarded(slot, asked, bytes(frame), request), name=f"forward {asked.route.name}"
        )

    async def _forwarded(self, slot: Slot, asked: Asked, frame: bytes, request: object) -> None:
        """Have the controller answer, wherever it is by then."""
        connection = slot.connection
        answer = await self._broker.channel.forward(
            frame, connection.principal.encode(), connection.client_host.encode()
        )
        if answer is not None:
            if (throttling := self._broker.throttling) is not None:
                answer = throttling.forwarded(connection, asked.route.api_key, asked.version, answer)
            slot.fill(SIZE.pack(len(answer)) + answer)
        elif self._broker.active_controller is not None:
            context = Context(asked.version, asked.client_id, connection)
            await self._finish(slot, asked, answer_of(self._broker, asked.route, context, request))
        else:
            slot.abandon("the controller cannot be asked")

    def _unsupported(
        self, connection: Connection, api_key: int, version: int, correlation_id: int
    ) -> Answer | None:
        self._metrics.unsupported_requests += 1
        if api_key == API_VERSIONS:
            # Whatever the client's version is, it can read a v0 body, and learns from it what to ask for.
            asked = Asked(self.table[API_VERSIONS], 0, correlation_id, None)
            connection.durations = self._figures[API_VERSIONS].durations
            return self._serve_now(connection, asked, memoryview(b""), None)
        name = APIS[api_key].name if api_key in APIS else f"API {api_key}"
        if self.table is not self._whole_table:
            connection.close("the broker is not ready yet")
            return None
        raise WireError(f"{name} version {version} is not served")
