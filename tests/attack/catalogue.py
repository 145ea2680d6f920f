"""All attacks, in the order in which they run."""

from __future__ import annotations

from .attack import Attack
from .issue import rows


def all_attacks() -> list[Attack]:
    return list(rows())
