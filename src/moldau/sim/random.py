"""Seeded chance. A fork is seeded by its parent's seed and its label, never by what was drawn before.

A label that is forked again gives another stream, so that two connections with one label do not share their
ids.
"""

from __future__ import annotations

import hashlib
import random
import uuid


class SimRandom:
    __slots__ = ("_forks", "_seed", "_source")

    def __init__(self, seed: int | str) -> None:
        self._seed = str(seed)
        # Not hash(): it differs from process to process.
        self._source = random.Random(int.from_bytes(hashlib.sha256(self._seed.encode()).digest()))
        self._forks: dict[str, int] = {}

    def fork(self, label: str) -> SimRandom:
        count = self._forks.get(label, 0)
        self._forks[label] = count + 1
        return SimRandom(f"{self._seed}/{label}#{count}")

    def random(self) -> float:
        return self._source.random()

    def randrange(self, stop: int) -> int:
        return self._source.randrange(stop)

    def bytes(self, length: int) -> bytes:
        return self._source.randbytes(length)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._source.randbytes(16), version=4)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._source.random()

    def chance(self, rate: float) -> bool:
        """True with probability `rate`. Draws nothing at rate zero, so that an absent fault changes no
        seed."""
        return rate > 0 and self._source.random() < rate
