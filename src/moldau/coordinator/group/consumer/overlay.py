"""A dict as it will be: changes over another one, which stays as it is.

It behaves as a changed copy of its base would, order included, and is made in no time, whatever the size of the base:
a copy touches every key and value. The base must not change while the overlay is in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Overlay(MutableMapping[K, V]):
    __slots__ = ("_base", "_gone", "_own")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._own: dict[K, V] = {}  # what was set here
        self._gone: set[K] = set()  # keys of the base that were deleted, and perhaps set again since

    def __getitem__(self, key: K) -> V:
        if key in self._own:
            return self._own[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V, /) -> V: ...
    @overload
    def get(self, key: K, default: D, /) -> V | D: ...

    def get(self, key: K, default: object = None, /) -> object:
        if key in self._own:
            return self._own[key]
        return default if key in self._gone else self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._own or (key not in self._gone and key in self._base)

    def __setitem__(self, key: K, value: V) -> None:
        self._own[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        if key in self._base:
            self._gone.add(key)

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._gone:
                yield key
        for key in self._own:
            if self._is_added(key):
                yield key

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + sum(map(self._is_added, self._own))

    def _is_added(self, key: K) -> bool:
        return key not in self._base or key in self._gone
