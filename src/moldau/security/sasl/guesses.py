"""Who guesses is slowed: the failures of each address, and how long the next one is to wait for its answer. Pure.

The first failures of an address wait as long as `connection.failed.authentication.delay.ms` says; with more of them
within a minute the wait doubles, up to GUESS_DELAY_S_MAX. Only so many of an address wait at the same time; who comes
meanwhile is not looked at before one of these is over. So an address has so many guesses in that time, however many
connections it opens. Who gives the right password is never kept waiting by failures of other addresses.

An IPv6 address counts with its /64. Addresses are forgotten after a minute; past GUESSING_ADDRESSES_MAX the one that
failed longest ago first.
"""

from __future__ import annotations

from moldau.base.limits import (
    GUESS_DELAY_S_MAX,
    GUESSES_FREE,
    GUESSES_WAITING_PER_ADDRESS_MAX,
    GUESSING_ADDRESSES_MAX,
)
from moldau.security.networks import network_of

FORGOTTEN_AFTER_S = 60.0
DELAY_S_MIN = 0.1
_DOUBLINGS_MAX = 16


class _Failures:
    __slots__ = ("count", "last_s", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.last_s = 0.0
        self.waiting = 0


class Guesses:
    def __init__(self) -> None:
        self._failures: dict[str, _Failures] = {}  # who failed last is the last

    def __len__(self) -> int:
        return len(self._failures)

    def is_full(self, address: str) -> bool:
        """Whether as many of this address wait for their answers as may."""
        known = self._failures.get(network_of(address))
        return known is not None and known.waiting >= GUESSES_WAITING_PER_ADDRESS_MAX

    def failed(self, address: str, now_s: float, delay_s: float) -> float:
        """One more has failed, and waits so many seconds; `done` says when it is over."""
        group = network_of(address)
        known = self._failures.pop(group, None) or _Failures()
        if now_s - known.last_s >= FORGOTTEN_AFTER_S:
            known.count = 0
        self._forget(now_s)
        self._failures[group] = known
        known.count += 1
        known.waiting += 1
        known.last_s = now_s
        if (more := known.count - GUESSES_FREE) > 0:
            longer_s = max(delay_s, DELAY_S_MIN) * 2.0 ** min(more, _DOUBLINGS_MAX)
            return max(delay_s, min(longer_s, GUESS_DELAY_S_MAX))
        return delay_s

    def done(self, address: str) -> None:
        known = self._failures.get(network_of(address))
        if known is not None and known.waiting:
            known.waiting -= 1

    def _forget(self, now_s: float) -> None:
        failures = self._failures
        while failures:
            group, oldest = next(iter(failures.items()))
            if len(failures) < GUESSING_ADDRESSES_MAX and now_s - oldest.last_s < FORGOTTEN_AFTER_S:
                break
            del failures[group]
