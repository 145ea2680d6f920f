"""A broken invariant stops the node: going on would put promises at risk."""

from __future__ import annotations


class InvariantBroken(Exception):
    pass


def invariant(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantBroken(what)
