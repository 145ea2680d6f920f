"""What each client has used of its quotas, over all kinds of them: Kafka's ClientQuotaManager. Pure.

It follows the cluster's quotas (`change`, `clear`), and knows for a user and client id what to count, in a `Meter`.
Whoever has no quota of a kind is not counted. Memory is bounded: counters that have been idle for their window say no
more than new ones, and are dropped; where QUOTA_COUNTERS_MAX of a kind are in use, client ids that have no quota by
their name and come then share one counter, those of a user among themselves, also where the quota is for a client id
whoever its user is. So a stranger with a million client ids takes little memory, and nothing of what other users have.

`version` rises when a quota or a counter goes: a meter of another version is out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from moldau.base.limits import QUOTA_COUNTERS_MAX, QUOTA_NAME_REMEMBERED_LETTERS_MAX
from moldau.security.quota_rates import QuotaWindow, Rate, TokenBucket
from moldau.security.quotas import (
    ABSENT,
    CLIENT_ID,
    CONNECTION,
    FETCH,
    IP,
    MUTATION,
    PRODUCE,
    REQUEST,
    USER,
    Found,
    QuotaTable,
    entity_of,
    value_of,
)


class Counter(Protocol):
    limit: float

    def is_idle(self, now_ms: int) -> bool: ...


C = TypeVar("C", bound=Counter)

COUNTED_S = 0.0005
SHARED = ""
"""Stands for all client ids that have no counter of their own. A client without an id is counted as one, too."""

_Place = tuple[str | None, str | None]


class QuotaKind(Generic[C]):
    """The quotas of one kind, and what is used of them."""

    def __init__(self, window: QuotaWindow, make: Callable[[QuotaWindow, float], C]) -> None:
        self._window = window
        self._make = make
        self._counters: dict[_Place, C] = {}
        self._swept_ms = 0
        self.table = QuotaTable()

    def __len__(self) -> int:
        """The counters in use."""
        return len(self._counters)

    def counter(self, user: str, client_id: str, now_ms: int) -> C | None:
        """What counts for this client; None where it has no quota of this kind."""
        found = self.table.find(user, client_id)
        return None if found is None else self._counter_of(found, user, now_ms)

    def _counter_of(self, found: Found, user: str, now_ms: int) -> C:
        place = found.user, found.client_id
        counter = self._counters.get(place)
        if counter is None and not found.is_named:
            place = self._place_for(place, user)
            counter = self._counters.get(place)
        if counter is None:
            counter = self._counters[place] = self._make(self._window, found.limit)
        counter.limit = found.limit
        return counter

    def _place_for(self, place: _Place, user: str) -> _Place:
        """Its own, or the one that it shares with others where there are too many: with those of its user first."""
        count = len(self._counters)
        is_short = all(len(name or "") <= QUOTA_NAME_REMEMBERED_LETTERS_MAX for name in place)
        if count < QUOTA_COUNTERS_MAX and is_short:
            return place
        _, client_id = place
        is_users = client_id is not None and len(user) <= QUOTA_NAME_REMEMBERED_LETTERS_MAX
        if is_users and (count < 2 * QUOTA_COUNTERS_MAX or (user, SHARED) in self._counters):
            return user, SHARED
        return SHARED, SHARED

    def must_sweep(self, now_ms: int) -> bool:
        """Once in a window."""
        return now_ms - self._swept_ms >= self._window.length_ms

    def sweep(self, now_ms: int) -> bool:
        """Drop the counters that say nothing; whether there were any. It takes 2 ms where all are in use."""
        self._swept_ms = now_ms
        idle = [place for place, counter in self._counters.items() if counter.is_idle(now_ms)]
        for place in idle:
            del self._counters[place]
        return bool(idle)


class Meter:
    """What counts for one client; None of what it has no quota of. It belongs to a connection.

    Times of the loop are put together until they are COUNTED_S: a small request takes a few microseconds.
    """

    __slots__ = ("_uncounted_s", "client_id", "fetch", "from_s", "principal", "produce", "request", "version")

    def __init__(
        self,
        version: int,
        principal: str,
        client_id: bytes,
        produce: Rate | None,
        fetch: Rate | None,
        request: Rate | None,
    ) -> None:
        self.version = version
        self.principal = principal
        self.client_id = client_id
        """As it came."""
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.from_s = 0.0
        """Since when the loop works for this client; 0 where it does not."""
        self._uncounted_s = 0.0

    def begin(self, now_s: float) -> bool:
        """The loop works for this client from now on; False where it does already."""
        if self.from_s:
            return False
        self.from_s = now_s
        return True

    def end(self, now_s: float) -> None:
        """It worked for the client until now."""
        if self.from_s:
            self._uncounted_s += now_s - self.from_s
            self.from_s = 0.0
            if self._uncounted_s >= COUNTED_S:
                self._count(now_s)

    def add(self, start_s: float, end_s: float) -> None:
        """It has worked for the client in this time."""
        self._uncounted_s += end_s - start_s
        if self._uncounted_s >= COUNTED_S:
            self._count(end_s)

    def _count(self, now_s: float) -> None:
        if self.request is not None:
            self.request.use(self._uncounted_s * 100, int(now_s * 1000))
        self._uncounted_s = 0.0

    def request_ms(self, now_s: float) -> int:
        """How long the client waits for the time that it has used up to now."""
        rate, from_s = self.request, self.from_s
        if rate is None:
            return 0
        if rate.total <= rate.allowed and (not from_s or now_s - from_s < COUNTED_S):
            return 0  # nearly always
        if from_s:
            self._uncounted_s += now_s - from_s
            self.from_s = now_s
        self._count(now_s)
        return rate.throttle_ms(int(now_s * 1000))


class QuotaMeters:
    def __init__(self, window: QuotaWindow, mutation_window: QuotaWindow) -> None:
        self._window = window
        self.produce: QuotaKind[Rate] = QuotaKind(window, Rate)
        self.fetch: QuotaKind[Rate] = QuotaKind(window, Rate)
        self.request: QuotaKind[Rate] = QuotaKind(window, Rate)
        self.mutation: QuotaKind[TokenBucket] = QuotaKind(mutation_window, TokenBucket)
        self.connection_rates: dict[str | None, float] = {}
        """`connection_creation_rate` by address; None is the default."""
        self.version = 0

    @property
    def is_empty(self) -> bool:
        """Whether no user or client id has a quota."""
        return not any(len(kind.table) for kind in self._kinds().values())

    @property
    def counted(self) -> dict[str, int]:
        """How many counters there are of each kind that somebody has a quota of."""
        kinds: dict[str, QuotaKind[Rate] | QuotaKind[TokenBucket]] = {
            "produce": self.produce,
            "fetch": self.fetch,
            "request": self.request,
            "controller_mutation": self.mutation,
        }
        return {name: len(kind) for name, kind in kinds.items() if len(kind.table)}

    def fetch_bytes_max(self, limit: float) -> int:
        """What can be fetched at once without a wait, by one who has fetched nothing of late."""
        return int(min(limit * self._window.least_ms / 1000, (1 << 31) - 1))

    def _kinds(self) -> Mapping[str, QuotaKind[Rate] | QuotaKind[TokenBucket]]:
        return {PRODUCE: self.produce, FETCH: self.fetch, REQUEST: self.request, MUTATION: self.mutation}

    # ---- the cluster's quotas ---------------------------------------------------------------------------------

    def change(self, key: str, values: Mapping[str, str]) -> None:
        """The quotas of one entity are these now; none: it has none any more."""
        entity = entity_of(key)
        self.version += 1
        if IP in entity:
            self.connection_rates.pop(entity[IP], None)
            if CONNECTION in values:
                self.connection_rates[entity[IP]] = value_of(values[CONNECTION])
            return
        user = entity.get(USER, ABSENT)
        client_id = entity.get(CLIENT_ID, ABSENT)
        for name, kind in self._kinds().items():
            text = values.get(name)
            kind.table.put(user, client_id, None if text is None else value_of(text))

    def clear(self) -> None:
        """There are no quotas any more. What was used of them stays known."""
        for kind in self._kinds().values():
            kind.table = QuotaTable()
        self.connection_rates.clear()
        self.version += 1

    # ---- clients ----------------------------------------------------------------------------------------------

    def meter(self, principal: str, client_id: bytes, name: str, now_ms: int) -> Meter:
        """`client_id` is what the meter is known by, `name` the same as text."""
        self._sweep(now_ms)
        user = user_of(principal)
        return Meter(
            self.version,
            principal,
            client_id,
            self.produce.counter(user, name, now_ms),
            self.fetch.counter(user, name, now_ms),
            self.request.counter(user, name, now_ms),
        )

    def bucket(self, principal: str, client_id: str, now_ms: int) -> TokenBucket | None:
        self._sweep(now_ms)
        return self.mutation.counter(user_of(principal), client_id, now_ms)

    def _sweep(self, now_ms: int) -> None:
        """One kind at a time, as clients come."""
        for kind in self._kinds().values():
            if kind.must_sweep(now_ms):
                self.version += kind.sweep(now_ms)
                return


def user_of(principal: str) -> str:
    """The name of a principal, without its type."""
    return principal.partition(":")[2]
