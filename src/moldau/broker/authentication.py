"""Who a client is, before anything else is served: what serves a connection of a SASL listener until that is known.

A `Gate` is a connection's `dispatch` until then; afterwards the broker's own is, and nothing of this is on its way.
With `connections.max.reauth.ms`, or a token that expires, a `Session` stands before it (KIP-368). Kafka's
SaslServerAuthenticator, with its order of requests: ApiVersions once, SaslHandshake, then messages of the mechanism:
in SaslAuthenticate requests, or as they are after SaslHandshake v0. Anything else ends the connection.

Guarantees:
- Nobody gets to a handler (but for ApiVersions) without having proved who it is.
- Frames are bounded in size (`sasl.server.max.receive.size`) and number, the time for them too, and connections that
  have not said who they are in number.
- Who fails waits (`security.sasl.guesses`), unread meanwhile, gets the answer, and is disconnected.
- Nothing that a client sends is logged, nor is a name: people type passwords there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol

from moldau.base.errors import ErrorCode
from moldau.base.limits import (
    AUTHENTICATING_MAX,
    AUTHENTICATION_FRAMES_MAX,
    AUTHENTICATION_S_MAX,
    FIRST_SLICE_S,
    GUESSES_HELD_MAX,
    SAID_OF_ADDRESS_MAX,
    SASL_TOKEN_BYTES_MAX,
    SILENT_S_MAX,
)
from moldau.broker.answers.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from moldau.broker.connection import REQUEST_BYTES_MIN, Connection
from moldau.broker.metrics.counters import UNTIMED, Metrics
from moldau.broker.seldom import SeldomOfEach
from moldau.broker.slot import Answer, Slot
from moldau.broker.strangers import Strangers
from moldau.broker.token_keys import Fetch, TokenChecker
from moldau.config.sasl import SaslSettings
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ResourceType
from moldau.runtime.ports import Runtime, Timer
from moldau.security.networks import network_of
from moldau.security.sasl.credentials import (
    MECHANISMS,
    SECRET_BYTES,
    Credential,
    Decoys,
    Mechanism,
    credential_of,
)
from moldau.security.sasl.exchange import PLAIN, PRINCIPAL_TYPE, Exchange, Refused, TokenToCheck
from moldau.security.sasl.guesses import Guesses
from moldau.security.sasl.oauthbearer import OAuthBearerExchange
from moldau.security.sasl.plain import PlainExchange, PlainUsers
from moldau.security.sasl.scram import NONCE_BYTES, ScramExchange
from moldau.wire.apis import API_VERSIONS, APIS
from moldau.wire.codec import decode_request, encode_response
from moldau.wire.frames import SIZE, WireError, parse_request_header, response_frame

log = logging.getLogger(__name__)

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
SOFTWARE_SINCE_VERSION = 3
REAUTHENTICATION_S_MIN = 1.0
"""A client that begins again earlier is told that this is not the time for it (Kafka's KafkaChannel)."""
SWEEP_S = 1.0
TOLD_EVERY_S = 10.0

Dispatch = Callable[[Connection, memoryview], Answer | None]


class GuardedBroker(Protocol):
    """What is asked of the broker here."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def fetch(self) -> Fetch: ...


class _Asked(NamedTuple):
    """A SaslAuthenticate request, as far as its answer is concerned."""

    version: int
    correlation_id: int

    def frame(self, answer: SaslAuthenticateResponse) -> bytes:
        return _frame(SASL_AUTHENTICATE, self.version, self.correlation_id, answer)


class _Held(NamedTuple):
    """A message that is looked at later: others of its address are waiting to be told that they have failed."""

    address: str
    slot: Slot
    since_s: float
    look: Callable[[], None]


class SaslListener:
    """The mechanisms of one listener."""

    def __init__(self, broker: GuardedBroker, settings: SaslSettings) -> None:
        self.settings = settings
        self.tokens: TokenChecker | None = None
        self._broker = broker
        self._random = broker.runtime.random.fork("sasl")
        self._otherwise = self._random.bytes(SECRET_BYTES)
        self._plain = PlainUsers({})
        if PLAIN in settings.lines:
            self._plain = PlainUsers.of(settings.lines[PLAIN])
        if settings.tokens is not None:
            self.tokens = TokenChecker(broker.runtime, settings.tokens, broker.fetch)

    def exchange(self, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainExchange(self._plain)
        if mechanism in MECHANISMS:
            one = MECHANISMS[mechanism]
            return ScramExchange(one, partial(self._credential, one), self._random.bytes(NONCE_BYTES))
        return OAuthBearerExchange()

    def needs_image(self, mechanism: str) -> bool:
        return mechanism in MECHANISMS

    def _credential(self, mechanism: Mechanism, name: str) -> tuple[Credential, bool]:
        """Both are made, whoever asks: it takes the same time."""
        users: Mapping[str, Mapping[str, str]] = self._broker.image.configs_of(ResourceType.USER)
        decoy = Decoys.of(users, self._otherwise).of_name(name, mechanism)
        found = credential_of(users, name, mechanism)
        return (decoy, False) if found is None else (found, True)


class Authentication:
    """What all gates of a broker share."""

    def __init__(
        self,
        broker: GuardedBroker,
        dispatch: Dispatch,
        listeners: Mapping[str, SaslSettings],
        *,
        frame_bytes_max: int,
    ) -> None:
        self.dispatch = dispatch
        self.frame_bytes_max = frame_bytes_max
        """Of a client that has said who it is."""
        self.metrics = broker.metrics
        self.clock = broker.runtime.clock
        self.tasks = broker.runtime.tasks
        self._broker = broker
        self._listeners = {name: SaslListener(broker, own) for name, own in listeners.items()}
        self._guesses = Guesses()
        self._held: deque[_Held] = deque()
        self._is_looking = False
        """Whether some that are held are about to be looked at."""
        self._strangers = Strangers()
        self._sweep: Timer | None = None
        self._tells_of = SeldomOfEach(self.clock, TOLD_EVERY_S, SAID_OF_ADDRESS_MAX)

    def welcome(self, connection: Connection) -> None:
        """A connection that has said nothing yet: on a listener with SASL it is served by a gate."""
        listener = self._listeners.get(connection.listener_name)
        if listener is None:
            return
        connection.dispatch = Gate(self, listener, None)
        connection.is_stranger = True
        connection.frame_bytes_max = listener.settings.receive_bytes_max
        if len(self._strangers) >= AUTHENTICATING_MAX:
            self._make_room()
        self._strangers.add(connection, self.clock.monotonic())
        self._keep_sweeping()

    def farewell(self, connection: Connection) -> None:
        """It is closed."""
        self._strangers.remove(connection)

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._held.clear()

    def is_ready_for(self, listener: SaslListener, mechanism: str) -> bool:
        """Before a broker has the cluster's image, it knows no users of it."""
        return bool(self._broker.image.cluster_id) or not listener.needs_image(mechanism)

    def known(self, connection: Connection) -> None:
        """It has said who it is."""
        self._strangers.remove(connection)
        self.metrics.authentications += 1

    def tell(self, connection: Connection, what: str, but: str = "") -> None:
        """What has gone wrong, and more about it, which the client may choose."""
        address = connection.stream.peer[0]
        network = network_of(address)
        if self._tells_of(network, (network, what)):
            log.info("a client at %s on listener %s: %s%s", address, connection.listener_name, what, but)

    def may_look(self, connection: Connection, size: int, look: Callable[[Slot], None]) -> bool:
        """Whether a message may be looked at now. Otherwise it is later, where it can wait for that."""
        address = connection.stream.peer[0]
        if not self._guesses.is_full(address) and not any(held.address == address for held in self._held):
            return True
        if len(self._held) >= GUESSES_HELD_MAX:
            self.tell(connection, "too many of this address fail to say who they are")
            connection.close(None)
            return False
        slot = connection.park(held_bytes=size)
        self._held.append(_Held(address, slot, self.clock.monotonic(), partial(look, slot)))
        self._keep_sweeping()
        return False

    def fail(
        self, connection: Connection, slot: Slot | None, answer: bytes | None, reason: str, but: str = ""
    ) -> None:
        """It is not who it says: tell it so after a while, and disconnect it."""
        slot = slot or connection.park()
        self.metrics.authentications_failed += 1
        self.tell(connection, f"authentication has failed: {reason}", but)
        address = connection.stream.peer[0]
        settings = self._listeners[connection.listener_name].settings
        delay_s = self._guesses.failed(address, self.clock.monotonic(), settings.failure_delay_s)
        connection.mute(delay_s)
        self.tasks.call_later(delay_s, self._end, connection, slot, answer, address)

    def _end(self, connection: Connection, slot: Slot, answer: bytes | None, address: str) -> None:
        self._guesses.done(address)
        if not connection.is_closed:
            slot.fill(answer)
            connection.close(None)
        if self._held and not self._is_looking:
            self._is_looking = True
            self.tasks.call_soon(self._look_at_held)

    def _look_at_held(self) -> None:
        """In their order those whose address has room again: who succeeds leaves it to the next one."""
        self._is_looking = False
        self._held = deque(held for held in self._held if held.slot.is_wanted)
        stop_s = self.clock.monotonic() + FIRST_SLICE_S
        while (held := self._next_held()) is not None:
            held.look()
            if self.clock.monotonic() >= stop_s:
                self._is_looking = True
                self.tasks.call_soon(self._look_at_held)
                return

    def _next_held(self) -> _Held | None:
        full: set[str] = set()
        for number, held in enumerate(self._held):
            if held.address in full:
                continue
            if not self._guesses.is_full(held.address):
                del self._held[number]
                return held
            full.add(held.address)
        return None

    def end_strangers(self, number_max: int) -> int:
        """Others find no room at all: end some that have not said in SILENT_S_MAX who they are."""
        late = self._strangers.since(self.clock.monotonic() - SILENT_S_MAX, number_max)
        for connection in late:
            connection.close(None)
        return len(late)

    def _make_room(self) -> None:
        one = self._strangers.one_of_most()
        self.tell(one, "it has not said who it is, and there are many like it")
        one.close(None)

    def _keep_sweeping(self) -> None:
        if self._sweep is None:
            self._sweep = self.tasks.call_later(SWEEP_S, self._end_late)

    def _end_late(self) -> None:
        self._sweep = None
        oldest_s = self.clock.monotonic() - AUTHENTICATION_S_MAX
        for connection in self._strangers.since(oldest_s, AUTHENTICATING_MAX):
            self._end_in_vain(connection)
        while self._held and self._held[0].since_s <= oldest_s:  # also of those who say again who they are
            self._end_in_vain(self._held.popleft().slot.connection)
        if self._strangers or self._held:
            self._keep_sweeping()

    def _end_in_vain(self, connection: Connection) -> None:
        if not connection.is_closed:
            self.tell(connection, "it has not said in time who it is")
            connection.close(None)


class _Step(Enum):
    VERSIONS = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    MESSAGES = "SaslAuthenticate"


class Gate:
    """Serves one connection until it has said who it is, or says so again (`session`)."""

    __slots__ = ("_exchange", "_frames", "_is_raw", "_listener", "_mechanism", "_office", "_session", "_step")

    def __init__(self, office: Authentication, listener: SaslListener, session: Session | None) -> None:
        self._office = office
        self._listener = listener
        self._session = session
        self._step = _Step.VERSIONS if session is None else _Step.HANDSHAKE
        self._frames = 0
        self._is_raw = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        """None, where another mechanism than before was asked for."""

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | None:
        connection.durations = UNTIMED
        self._frames += 1
        if self._frames > AUTHENTICATION_FRAMES_MAX:
            return self._leave(connection, "too many requests before it has said who it is")
        if self._is_raw and self._step is _Step.MESSAGES:
            return self._message(connection, bytes(frame), None)
        if len(frame) > self._listener.settings.receive_bytes_max:
            raise WireError(f"a request of {len(frame)} bytes before it has said who it is")
        api_key, version, correlation_id, _, position = parse_request_header(frame)
        if self._step is _Step.MESSAGES:
            return self._on_authenticate(connection, frame, api_key, version, correlation_id, position)
        if api_key == API_VERSIONS and self._step is _Step.VERSIONS:
            return self._on_versions(connection, frame, version)
        if api_key != SASL_HANDSHAKE or not _is_known(SASL_HANDSHAKE, version):
            return self._leave(connection, f"not {self._step.value}", f", but {_name(api_key)} v{version}")
        request = decode_request(SASL_HANDSHAKE, version, frame, position)
        return self._on_handshake(connection, request, version, correlation_id)

    def _leave(self, connection: Connection, reason: str, but: str = "") -> Answer | None:
        """As Kafka, without an answer."""
        self._office.metrics.authentications_failed += 1
        self._office.tell(connection, reason, but)
        connection.close(None)
        return None

    def _on_versions(self, connection: Connection, frame: memoryview, version: int) -> Answer | None:
        answer = self._office.dispatch(connection, frame)
        is_good = _is_known(API_VERSIONS, version)
        if is_good and (version < SOFTWARE_SINCE_VERSION or connection.client_software is not None):
            self._step = _Step.HANDSHAKE
        return answer

    def _on_handshake(
        self, connection: Connection, request: Any, version: int, correlation_id: int
    ) -> Answer | None:
        mechanism: str = request.mechanism
        mechanisms = self._listener.settings.mechanisms

        def answer(error: ErrorCode) -> bytes:
            return _frame(SASL_HANDSHAKE, version, correlation_id, SaslHandshakeResponse(error, mechanisms))

        if mechanism not in mechanisms:
            refusal = answer(ErrorCode.unsupported_sasl_mechanism)
            self._office.fail(connection, None, refusal, "a mechanism that is not enabled")
            return None
        if not self._office.is_ready_for(self._listener, mechanism):
            return self._leave(connection, "the users of the cluster are not known yet")
        self._mechanism = mechanism
        self._is_raw = version == 0
        self._step = _Step.MESSAGES
        if self._is_raw:
            connection.frame_bytes_min = 0
        if self._session is None or mechanism == self._session.mechanism:
            self._exchange = self._listener.exchange(mechanism)
        return answer(ErrorCode.none)

    def _on_authenticate(
        self,
        connection: Connection,
        frame: memoryview,
        api_key: int,
        version: int,
        correlation_id: int,
        position: int,
    ) -> Answer | None:
        if api_key != SASL_AUTHENTICATE:
            refusal = None
            if api_key == SASL_HANDSHAKE and _is_known(api_key, version):
                body = SaslHandshakeResponse(ErrorCode.illegal_sasl_state)
                refusal = _frame(api_key, version, correlation_id, body)
            but = f", but {_name(api_key)}"
            self._office.fail(connection, None, refusal, "not SaslAuthenticate", but)
            return None
        if not _is_known(api_key, version):
            return self._leave(connection, "an unknown version of SaslAuthenticate", f": {version}")
        request = decode_request(api_key, version, frame, position)
        return self._message(connection, bytes(request.auth_bytes or b""), _Asked(version, correlation_id))

    # ---- messages of the mechanism ----------------------------------------------------------------------------

    def _message(self, connection: Connection, message: bytes, asked: _Asked | None) -> Answer | None:
        exchange = self._exchange
        if exchange is None:
            self._office.fail(connection, None, None, "another mechanism than before")
            return None
        if len(message) > SASL_TOKEN_BYTES_MAX:
            return self._refuse(connection, None, asked, Refused("a message that is too long"))

        def look(slot: Slot) -> None:
            if (answer := self._look(connection, slot, exchange, message, asked)) is not None:
                slot.fill(answer)

        if not self._office.may_look(connection, len(message), look):
            return None
        return self._look(connection, None, exchange, message, asked)

    def _look(
        self,
        connection: Connection,
        slot: Slot | None,
        exchange: Exchange,
        message: bytes,
        asked: _Asked | None,
    ) -> bytes | None:
        """The answer; None where it comes later, or not at all."""
        try:
            said = exchange.answer(message)
            if type(said) is TokenToCheck:
                work = self._check(slot or connection.park(), exchange, said.token, asked)
                self._office.tasks.spawn(work, name="check of a token")
                return None
            assert isinstance(said, bytes)
            return self._say(connection, exchange, said, asked)
        except Refused as refused:
            return self._refuse(connection, slot, asked, refused)

    async def _check(self, slot: Slot, exchange: Exchange, token: str, asked: _Asked | None) -> None:
        tokens = self._listener.tokens
        try:
            found = None if tokens is None else await tokens.identity(token)
            if not slot.is_wanted:
                return
            if found is None:
                self._office.tell(slot.connection, "its token names nobody")
            answer = self._say(slot.connection, exchange, exchange.checked(found), asked)
        except Refused as refused:
            self._refuse(slot.connection, slot, asked, refused)
        else:
            slot.fill(answer)

    def _say(self, connection: Connection, exchange: Exchange, said: bytes, asked: _Asked | None) -> bytes:
        lifetime_ms = 0 if exchange.user is None else self._let_in(connection, exchange, exchange.user)
        if asked is None:
            return SIZE.pack(len(said)) + said
        return asked.frame(SaslAuthenticateResponse(ErrorCode.none, "", said, lifetime_ms))

    def _refuse(
        self, connection: Connection, slot: Slot | None, asked: _Asked | None, refused: Refused
    ) -> bytes | None:
        text = refused.text or (
            f"Authentication failed during {self._what} due to invalid credentials "
            f"with SASL mechanism {self._mechanism}"
        )
        answer = None
        if asked is not None:
            failed = SaslAuthenticateResponse(ErrorCode.sasl_authentication_failed, text)
            answer = asked.frame(failed)
        self._office.fail(connection, slot, answer, f"{self._mechanism}: {refused}")
        return None

    @property
    def _what(self) -> str:
        return "authentication" if self._session is None else "re-authentication"

    def _let_in(self, connection: Connection, exchange: Exchange, user: str) -> int:
        """From here on it is served; for so many milliseconds, 0: for ever. Refused where it is another than before."""
        principal = f"{PRINCIPAL_TYPE}:{user}"
        if self._session is not None and principal != connection.principal:
            before = connection.principal.replace(":", ".", 1)
            now = principal.replace(":", ".", 1)
            text = f"Cannot change principals during re-authentication from {before}: {now}"
            raise Refused("another user than before", text)
        office = self._office
        lifetime_ms = self._lifetime_ms(exchange)
        connection.principal = principal
        connection.is_stranger = False
        connection.frame_bytes_min = REQUEST_BYTES_MIN
        connection.frame_bytes_max = office.frame_bytes_max
        connection.dispatch = office.dispatch
        if lifetime_ms is not None:
            session = self._session or Session(office, self._listener, self._mechanism)
            session.expires_s = office.clock.monotonic() + lifetime_ms / 1000
            connection.dispatch = session
        office.known(connection)
        return lifetime_ms or 0

    def _lifetime_ms(self, exchange: Exchange) -> int | None:
        limits = []
        if exchange.expires_ms is not None:
            limits.append(max(0, exchange.expires_ms - self._office.clock.wall_ms()))
        if (reauth_ms := self._listener.settings.reauth_ms[self._mechanism]) > 0:
            limits.append(reauth_ms)
        return min(limits, default=None)


class Session:
    """Serves a connection whose client has to say again who it is, before `expires_s`."""

    __slots__ = ("_began_s", "_listener", "_office", "expires_s", "mechanism")

    def __init__(self, office: Authentication, listener: SaslListener, mechanism: str) -> None:
        self._office = office
        self._listener = listener
        self._began_s = float("-inf")
        self.mechanism = mechanism
        self.expires_s = 0.0

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | None:
        now_s = self._office.clock.monotonic()
        if int.from_bytes(frame[:2], "big") == SASL_HANDSHAKE and self._may_begin(now_s):
            self._began_s = now_s
            gate = Gate(self._office, self._listener, self)
            connection.dispatch = gate
            return gate(connection, frame)
        if now_s > self.expires_s:
            self._office.metrics.sessions_expired += 1
            self._office.tell(connection, "its session has expired")
            connection.close(None)
            return None
        return self._office.dispatch(connection, frame)

    def _may_begin(self, now_s: float) -> bool:
        return now_s - self._began_s >= REAUTHENTICATION_S_MIN


def _is_known(api_key: int, version: int) -> bool:
    api = APIS[api_key]
    return api.min_version <= version <= api.max_version


def _name(api_key: int) -> str:
    return APIS[api_key].name if api_key in APIS else f"API {api_key}"


def _frame(api_key: int, version: int, correlation_id: int, answer: object) -> bytes:
    return response_frame(api_key, version, correlation_id, encode_response(api_key, version, answer))
