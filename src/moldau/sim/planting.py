"""Bugs on purpose: each is put into the broker for one simulated run, and the checkers of a workload must find it.

A plant patches a function of the product or of the simulated disk, and takes the patch back at the end; the product's
own code knows nothing of them. Every workload has its own. `python -m moldau.sim --list-plants` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple


class Plant(NamedTuple):
    promise: int
    """The one that it breaks, by its number in docs/requirements.md."""
    what: str
    bug: Callable[[], AbstractContextManager[None]]


class Plants(dict[str, Plant]):
    """The bugs that one workload finds, by name. Called, it takes another one in: a decorator."""

    def __call__(self, name: str, *, promise: int) -> Callable[[Callable[[], Iterator[None]]], None]:
        def register(bug: Callable[[], Iterator[None]]) -> None:
            assert name not in self
            self[name] = Plant(promise, (bug.__doc__ or "").splitlines()[0], contextmanager(bug))

        return register

    @contextmanager
    def planted(self, name: str | None) -> Iterator[None]:
        """Run with a bug in the broker; None plants nothing."""
        if name is None:
            yield
            return
        with self[name].bug():
            yield


@contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
