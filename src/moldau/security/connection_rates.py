"""How fast new connections may come: over the broker, on a listener, and of an address (Kafka's ConnectionQuotas).
Pure.

Who comes too fast over the broker or on a listener waits (`delay_ms`), as Kafka's acceptor does, which takes up nobody
else meanwhile. Who comes too fast from an address is refused (`refuse_ms`), and is not counted anywhere. No wait is
longer than one sample of the window. The brokers' own listener does not count for the broker's rate, and is not held
back by it.

Addresses that are idle are forgotten. Where CONNECTION_RATE_ADDRESSES_MAX are counted, further ones that have no quota
by name share one count.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from moldau.base.limits import CONNECTION_RATE_ADDRESSES_MAX
from moldau.security.acls import canonical_host
from moldau.security.quota_rates import QuotaWindow, Rate

_OTHERS = ""


class ConnectionRates:
    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._broker = Rate(window)
        self._listeners: dict[str, Rate] = {}
        self._addresses: dict[str, Rate] = {}
        self._by_address: Mapping[str | None, float] = {}
        self._swept_ms = 0

    def set_limits(self, of_broker: float, of_listeners: Mapping[str, float]) -> None:
        """`max.connection.creation.rate`; listeners without one of their own have none."""
        self._broker.limit = of_broker
        for name in self._listeners.keys() | of_listeners.keys():
            self._listeners.setdefault(name, Rate(self._window)).limit = of_listeners.get(name, inf)

    def set_addresses(self, limits: Mapping[str | None, float]) -> None:
        """By address; None is the default of all others."""
        self._by_address = {
            None if name is None else canonical_host(name): limit for name, limit in limits.items()
        }

    @property
    def limits_nothing(self) -> bool:
        listeners = self._listeners.values()
        return (
            self._broker.limit == inf
            and all(rate.limit == inf for rate in listeners)
            and not self._by_address
        )

    def delay_ms(self, listener: str, now_ms: int, *, is_protected: bool = False) -> int:
        """How long a connection that has come now has to wait."""
        rates = [self._listeners[listener]] if listener in self._listeners else []
        if not is_protected:
            rates.append(self._broker)
        for rate in rates:
            rate.record(1, now_ms)
        return max([self._bounded(rate.throttle_ms(now_ms)) for rate in rates], default=0)

    def refuse_ms(self, listener: str, address: str, now_ms: int, *, is_protected: bool = False) -> int:
        """0, or how long an address is too fast for: then the connection is refused, and does not count."""
        if not self._by_address:
            return 0
        rate = self._rate_of(canonical_host(address), now_ms)
        if rate is None:
            return 0
        rate.record(1, now_ms)
        wait_ms = self._bounded(rate.throttle_ms(now_ms))
        if wait_ms:
            rate.record(-1, now_ms)
            if listener in self._listeners:
                self._listeners[listener].record(-1, now_ms)
            if not is_protected:
                self._broker.record(-1, now_ms)
        return wait_ms

    def _bounded(self, wait_ms: int) -> int:
        return min(wait_ms, self._window.sample_ms)

    def _rate_of(self, address: str, now_ms: int) -> Rate | None:
        is_named = address in self._by_address
        limit = self._by_address.get(address if is_named else None)
        if limit is None:
            return None
        if now_ms - self._swept_ms >= self._window.length_ms:
            self._swept_ms = now_ms
            for idle in [name for name, rate in self._addresses.items() if rate.is_idle(now_ms)]:
                del self._addresses[idle]
        is_new = address not in self._addresses and not is_named
        if is_new and len(self._addresses) >= CONNECTION_RATE_ADDRESSES_MAX:
            address = _OTHERS
        rate = self._addresses.setdefault(address, Rate(self._window))
        rate.limit = limit
        return rate
