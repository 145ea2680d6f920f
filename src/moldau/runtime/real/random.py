"""The system's entropy: good enough for ids, nonces and secrets, so nothing has to ask which kind it gets."""

from __future__ import annotations

import os
import random
import uuid


class RealRandom:
    __slots__ = ("_source",)

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def random(self) -> float:
        return self._source.random()

    def randrange(self, stop: int) -> int:
        return self._source.randrange(stop)

    def fork(self, label: str) -> RealRandom:
        """Entropy has no streams to keep apart: every fork is as independent as its source."""
        return self

    def bytes(self, length: int) -> bytes:
        return os.urandom(length)

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()
