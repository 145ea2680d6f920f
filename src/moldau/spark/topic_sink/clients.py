"""Clients that are kept between the tasks of a worker process: making one costs 50 to 500 ms, using it again nothing.

Spark keeps its Python workers between micro-batches and runs one task at a time in each. So a client is taken out while
a task uses it, and given back when the task has ended well; one that failed is closed instead. At most `KEPT_MAX` are
kept, the ones used last, and none for longer than `IDLE_S_MAX`. A forked child inherits none of them.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

KEPT_MAX = 16
"""A transactional sink has one for each task's partition that comes to this worker."""
IDLE_S_MAX = 600.0
"""As long as Spark's own connector keeps producers (spark.kafka.producer.cache.timeout)."""


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Kept(Generic[C]):
    """Clients that nobody uses now, by what they were made from."""

    def __init__(
        self,
        kept_max: int = KEPT_MAX,
        idle_s_max: float = IDLE_S_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept_max = kept_max
        self._idle_s_max = idle_s_max
        self._clock = clock
        self._process_id = os.getpid()
        self._clients: OrderedDict[Hashable, tuple[C, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def take(self, key: Hashable) -> C | None:
        """The one that was given back under that key: it is the caller's now."""
        self._forget_the_parents()
        self._close_idle()
        found = self._clients.pop(key, None)
        return None if found is None else found[0]

    def give_back(self, key: Hashable, client: C) -> None:
        self._forget_the_parents()
        before = self._clients.pop(key, None)
        if before is not None:
            before[0].close()
        self._clients[key] = client, self._clock()
        while len(self._clients) > self._kept_max:
            _, (oldest, _) = self._clients.popitem(last=False)
            oldest.close()
        self._close_idle()

    def close(self) -> None:
        while self._clients:
            _, (client, _) = self._clients.popitem(last=False)
            client.close()

    def _close_idle(self) -> None:
        """They stand in the order in which they were given back."""
        while self._clients:
            key, (client, since_s) = next(iter(self._clients.items()))
            if self._clock() - since_s <= self._idle_s_max:
                return
            del self._clients[key]
            client.close()

    def _forget_the_parents(self) -> None:
        """The threads of a client do not come along into a forked process."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._clients = OrderedDict()
