"""What Java does to texts, its hash tables above all: clients, tools and Kafka's own choices follow from it.

The partition of a group comes from the hash of its id, and where Kafka takes the first of several that are as good,
it is the first in a hash table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

HASHES_KEPT = 10_000
"""Every request of a member needs the hash of its group's id."""
TABLE_MIN = 16


@lru_cache(maxsize=HASHES_KEPT)
def java_hash(text: str) -> int:
    """What Java's hash code of a text is, taken as a number without a sign."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8) + data[position + 1]) & 0xFFFFFFFF
    return value


def java_length(text: str) -> int:
    """What Kafka's limits count: letters beyond 16 bits are two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def java_order(names: Iterable[str], among: int = 0) -> list[str]:
    """As a hash table of Java goes through texts: who comes first gets the odd partition, in Kafka and here.

    Where the table has more texts than these, `among` says how many in all.
    """
    rows = list(names)
    size = TABLE_MIN
    while max(among, len(rows)) > size * 3 // 4:
        size *= 2

    def place(name: str) -> int:
        value = java_hash(name)
        return (value ^ (value >> 16)) & (size - 1)

    return sorted(rows, key=place)
