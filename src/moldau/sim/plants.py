"""Bugs on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

PLANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Run with a bug in the broker; None plants nothing."""
    if name is None:
        yield
        return
    with PLANTS[name]():
        yield
