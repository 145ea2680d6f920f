"""What quotas do to clients: their answers say how long to wait, and their connections are muted for as long (KIP-219).

Only there while some user or client id has a quota: `Broker.throttling` is None otherwise. Each broker counts for
itself, as Kafka's do. What is counted: the bytes of Produce requests, the bytes of records in answers to consumers, the
time that the loop works for a client, and the partitions that are created and deleted (on the controller).

The answer goes out at once. One to a Fetch that is over a quota is empty, and its bytes do not count. Brokers' own
requests are exempt: internal APIs, markers, and followers' fetches. So is what a client asks before it has said who it
is: one could use up what all newcomers have together. So is a Produce without an answer from the quota of time, as in
Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import THROTTLE_S_MAX
from moldau.broker.kept_answers import Packed
from moldau.broker.metrics.counters import Metrics
from moldau.runtime.line import Slices
from moldau.runtime.ports import Clock
from moldau.security.quota_meters import Meter, QuotaMeters
from moldau.security.quota_rates import QuotaWindow, Rate, TokenBucket
from moldau.wire.apis import RESPONSE_HEADER_FLEXIBLE_FROM
from moldau.wire.frames import CLIENT_ID_START

if TYPE_CHECKING:
    from moldau.broker.connection import Connection
    from moldau.broker.dispatch import Route
    from moldau.broker.interface import AdminBroker, RequestContext

METADATA_THROTTLES_SINCE = 3
_INT32 = Struct(">i")
T = TypeVar("T")


class Throttling:
    def __init__(self, clock: Clock, metrics: Metrics, meters: QuotaMeters, window: QuotaWindow) -> None:
        self._clock = clock
        self._metrics = metrics
        self._meters = meters
        self._request_ms_max = window.sample_ms

    # ---- whose request it is ----------------------------------------------------------------------------------

    def begin(self, connection: Connection, frame: memoryview, client_id_stop: int, route: Route) -> None:
        """A request is taken up: what it uses counts for its client, until the connection says that it is done."""
        if route.is_unlimited or connection.is_stranger:
            connection.meter = None
            return
        meter = connection.meter
        client_id = bytes(frame[CLIENT_ID_START:client_id_stop]) if client_id_stop > 0 else b""
        if (
            meter is None
            or meter.version != self._meters.version
            or meter.client_id != client_id
            or meter.principal != connection.principal
        ):
            now_ms = int(self._clock.monotonic() * 1000)
            name = client_id.decode("utf-8", "replace")
            meter = self._meters.meter(connection.principal, client_id, name, now_ms)
            connection.meter = meter
        if meter.request is not None:
            meter.from_s = connection.began_s

    # ---- what is used, and how long to wait -------------------------------------------------------------------

    def produced(
        self, connection: Connection, size: int, *, now_s: float = 0.0, is_answered: bool = True
    ) -> int:
        """The milliseconds that its producer waits."""
        meter = connection.meter
        if meter is None:
            return 0
        now_s = now_s or self._clock.monotonic()
        bytes_ms = 0 if meter.produce is None else meter.produce.use(size, int(now_s * 1000))
        request_ms = meter.request_ms(now_s) if is_answered else 0
        if not bytes_ms and not request_ms:
            return 0  # nearly always
        return self._throttle(connection, "produce", bytes_ms, request_ms)

    def fetched(self, connection: Connection, size: int) -> int:
        """The milliseconds that its consumer waits, without what it has asked for."""
        meter = connection.meter
        if meter is None:
            return 0
        now_s = self._clock.monotonic()
        now_ms = int(now_s * 1000)
        request_ms = meter.request_ms(now_s)
        bytes_ms = 0 if meter.fetch is None else meter.fetch.use(size, now_ms)
        if not bytes_ms and not request_ms:
            return 0
        if meter.fetch is not None:
            meter.fetch.record(-size, now_ms)
        return self._throttle(connection, "fetch", bytes_ms, request_ms)

    def fetch_bytes_max(self, connection: Connection, wanted: int, replica_id: int) -> int:
        """How much an answer may have: what is more would have to wait in any case. Followers have throttles of their
        own."""
        if replica_id >= 0:
            connection.meter = None
        rate: Rate | None = None if connection.meter is None else connection.meter.fetch
        return wanted if rate is None else min(wanted, self._meters.fetch_bytes_max(rate.limit))

    def answered(self, connection: Connection, mutation_ms: int = 0) -> int:
        """The milliseconds that the client waits for the time that it has used, or for what it has changed."""
        meter = connection.meter
        request_ms = 0 if meter is None else meter.request_ms(self._clock.monotonic())
        if not mutation_ms and not request_ms:
            return 0
        return self._throttle(connection, "controller_mutation", mutation_ms, request_ms)

    def mutations(self, context: RequestContext, *, is_strict: bool) -> Mutations:
        """The quota by which this request may create and delete partitions."""
        now_ms = int(self._clock.monotonic() * 1000)
        bucket = self._meters.bucket(context.principal, context.client_id or "", now_ms)
        return Mutations(self._clock, bucket, is_strict=is_strict)

    def _throttle(self, connection: Connection, quota: str, quota_ms: int, request_ms: int) -> int:
        """Mute the connection for the longer time."""
        request_ms = min(request_ms, self._request_ms_max)
        throttle_ms = max(quota_ms, request_ms)
        self._metrics.note_throttled(quota if quota_ms > request_ms else "request", throttle_ms / 1000)
        if not connection.is_closed:
            connection.mute(min(throttle_ms / 1000, THROTTLE_S_MAX))
        return throttle_ms

    # ---- answers ----------------------------------------------------------------------------------------------

    def marked(self, connection: Connection, version: int, answer: Any) -> Any:
        """The answer, with how long its client waits."""
        throttle_ms = self.answered(connection, _said_by(answer))
        if not throttle_ms:
            return answer
        if type(answer) is Packed:
            return answer if version < METADATA_THROTTLES_SINCE else answer.throttled(throttle_ms)
        if not hasattr(answer, "throttle_time"):
            return answer
        return answer._replace(throttle_time=throttle_ms)

    def forwarded(self, connection: Connection, api_key: int, version: int, answer: bytes) -> bytes:
        """The same for one that the controller has packed, without its length. All of these begin with the time."""
        start = 4 + (version >= RESPONSE_HEADER_FLEXIBLE_FROM[api_key])
        if len(answer) < start + 4:
            return answer
        throttle_ms = self.answered(connection, _INT32.unpack_from(answer, start)[0])
        return answer[:start] + _INT32.pack(throttle_ms) + answer[start + 4 :]


def _said_by(answer: Any) -> int:
    """What the handler says: only the ones that create and delete partitions do."""
    said = getattr(answer, "throttle_time", 0)
    return said if type(said) is int else 0


def metered(work: Slices[None], meter: Meter, monotonic: Callable[[], float]) -> Slices[None]:
    """Work for a client, whose time counts."""
    while True:
        is_first = meter.begin(monotonic())
        try:
            next(work)
        except StopIteration:
            return
        finally:
            if is_first:
                meter.end(monotonic())
        yield


def counted(meter: Meter | None, clock: Clock, work: Callable[[T], None]) -> Callable[[T], None]:
    """A step of a client's request, whose time counts."""
    if meter is None:
        return work

    def step(argument: T) -> None:
        is_first = meter.begin(clock.monotonic())
        try:
            work(argument)
        finally:
            if is_first:
                meter.end(clock.monotonic())

    return step


class Mutations:
    """What one request may create and delete (KIP-599). A strict one is refused when nothing is left, and may use more
    than is left as long as something is; one of before that is never refused, and waits."""

    def __init__(self, clock: Clock, bucket: TokenBucket | None, *, is_strict: bool) -> None:
        self._clock = clock
        self._bucket = bucket
        self._is_strict = is_strict
        self._until_ms = 0

    def charge(self, partitions: int) -> None:
        """KafkaError where it has to wait for that."""
        if self._bucket is None:
            return
        now_ms = int(self._clock.monotonic() * 1000)
        if self._is_strict and (wait_ms := self._bucket.throttle_ms(now_ms)):
            self._until_ms = now_ms + wait_ms
            raise KafkaError(ErrorCode.throttling_quota_exceeded)
        self._bucket.take(partitions, now_ms)
        if not self._is_strict and (wait_ms := self._bucket.throttle_ms(now_ms)):
            self._until_ms = now_ms + wait_ms

    @property
    def throttle_ms(self) -> int:
        """How long the client waits from now on."""
        return max(0, self._until_ms - int(self._clock.monotonic() * 1000)) if self._until_ms else 0


class Unlimited:
    """Of a cluster without quotas."""

    throttle_ms = 0

    def charge(self, _partitions: int) -> None:
        pass


UNLIMITED = Unlimited()


def mutations_of(broker: AdminBroker, context: RequestContext, strict_since: int) -> Mutations | Unlimited:
    throttling = broker.throttling
    if throttling is None:
        return UNLIMITED
    return throttling.mutations(context, is_strict=context.version >= strict_since)
