"""The rows of a batch as librdkafka takes them: where each one's bytes are, with nothing of them copied or unpacked.

Only a checksum looks into rows, and it unpacks some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from crc32c import crc32c

from moldau.spark.topic_sink.librdkafka import (
    ANY_PARTITION,
    ARGUMENT,
    COPY,
    MESSAGE,
    OF_FLAGS,
    OF_HEADER,
    OF_KEY,
    OF_PARTITION,
    OF_TOPIC,
    OF_VALUE,
)

if TYPE_CHECKING:
    import pyarrow

NULL: Final = b"\x00null"
"""Stands for a null in a checksum."""
ROWS_UNPACKED_MAX: Final = 500
"""As many as the processor's caches hold: of 1 KB rows, unpacking thousands at once takes twice as long."""
EMPTY: Final[Any] = np.zeros(1, np.uint8)
"""Where bytes are that are none, and not null."""
FIXED_ARGUMENTS: Final = (OF_TOPIC, OF_PARTITION, OF_FLAGS, OF_VALUE, OF_KEY)
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of byte strings: their addresses, 0 for a null, and lengths."""

    addresses: Any
    lengths: Any
    unpacked: Callable[[int, int], list[bytes | None]]
    """Some of them, from one up to another; it keeps the memory, too."""

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of_arrow(cls, column: pyarrow.Array) -> Cells:
        """A column of the type (large) binary or string."""
        import pyarrow as pa

        is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
        column = column.cast(pa.large_binary() if is_large else pa.binary())
        _, ends, data = column.buffers()
        width = np.dtype(np.int64 if is_large else np.int32)
        offsets: Any = np.zeros(1, width)
        if len(column):
            offsets = np.frombuffer(ends, width, len(column) + 1, column.offset * width.itemsize)
        base = EMPTY.ctypes.data if data is None else data.address
        addresses = offsets[:-1].astype(np.uint64) + np.uint64(base)
        lengths = np.diff(offsets).astype(np.uint64)
        if column.null_count:
            is_null = column.is_null().to_numpy(zero_copy_only=False)
            addresses[is_null] = lengths[is_null] = 0
        return cls(addresses, lengths, lambda start, end: column.slice(start, end - start).to_pylist())

    @classmethod
    def of_values(cls, values: Sequence[bytes | None]) -> Cells:
        lengths = np.array([len(value or b"") for value in values], np.uint64)
        memory = np.frombuffer(b"".join(value or b"" for value in values) or b"\0", np.uint8)
        addresses = np.uint64(memory.ctypes.data) + np.cumsum(lengths) - lengths
        addresses[np.array([value is None for value in values], bool)] = 0

        def unpacked(start: int, end: int) -> list[bytes | None]:
            return list(values[start:end]) if len(memory) else []

        return cls(addresses, lengths, unpacked)


@dataclass(frozen=True, slots=True)
class HeaderCells:
    """The headers of all rows, one after the other, and how many each row has."""

    counts: Any
    names: Cells
    """Each with a zero behind it."""
    values: Cells
    unpacked: Callable[[int, int], list[Headers | None]]

    @classmethod
    def of_values(cls, rows: Sequence[Headers | None]) -> HeaderCells:
        headers = [header for row in rows for header in row or ()]
        return cls(
            np.array([len(row or ()) for row in rows], np.int64),
            Cells.of_values([name.encode() + b"\0" for name, _ in headers]),
            Cells.of_values([value for _, value in headers]),
            lambda start, end: list(rows[start:end]),
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one batch, column by column; what is None, no row has."""

    topics: str | list[str]
    keys: Cells | None
    values: Cells
    headers: HeaderCells | None
    partitions: Any
    """ANY_PARTITION where the partitioner is to choose."""

    def __len__(self) -> int:
        return len(self.values)

    def by_topic(self) -> Iterator[tuple[str, Any]]:
        """Each topic, and which rows are for it, in their order."""
        if isinstance(self.topics, str):
            yield self.topics, np.arange(len(self))
            return
        found: dict[str, list[int]] = {}
        for number, topic in enumerate(self.topics):
            found.setdefault(topic, []).append(number)
        for topic, numbers in found.items():
            yield topic, np.array(numbers)

    def messages(self, numbers: Any) -> Any:
        """Those rows as an array of MESSAGE, without their headers."""
        made: Any = np.zeros(len(numbers), MESSAGE)
        made["payload"], made["len"] = self.values.addresses[numbers], self.values.lengths[numbers]
        if self.keys is not None:
            made["key"], made["key_len"] = self.keys.addresses[numbers], self.keys.lengths[numbers]
        made["partition"] = ANY_PARTITION if self.partitions is None else self.partitions[numbers]
        return made

    def arguments(self, numbers: Any) -> tuple[Any, Any]:
        """Those rows with their headers as an array of ARGUMENT; where each begins, and the last one ends."""
        assert self.headers is not None
        counts = self.headers.counts
        first_headers = np.cumsum(counts) - counts
        messages, fixed = self.messages(numbers), len(FIXED_ARGUMENTS)
        starts = np.concatenate(([0], np.cumsum(counts[numbers] + fixed)))
        made: Any = np.zeros(starts[-1], ARGUMENT)
        for index, kind in enumerate(FIXED_ARGUMENTS):
            made["kind"][starts[:-1] + index] = kind
        made["first"][starts[:-1] + FIXED_ARGUMENTS.index(OF_PARTITION)] = messages["partition"].astype(
            np.uint64
        )
        made["first"][starts[:-1] + FIXED_ARGUMENTS.index(OF_FLAGS)] = COPY
        for kind, address, length in ((OF_VALUE, "payload", "len"), (OF_KEY, "key", "key_len")):
            made["first"][starts[:-1] + FIXED_ARGUMENTS.index(kind)] = messages[address]
            made["second"][starts[:-1] + FIXED_ARGUMENTS.index(kind)] = messages[length]
        places = np.flatnonzero(made["kind"] == 0)
        picked = ranges(first_headers[numbers], counts[numbers])
        made["kind"][places] = OF_HEADER
        made["first"][places] = self.headers.names.addresses[picked]
        made["second"][places] = self.headers.values.addresses[picked]
        made["third"][places] = self.headers.values.lengths[picked]
        return made, starts

    def checksum(self) -> int:
        """The sum of the rows' CRCs: equal for the same rows in another order, in other batches."""
        starts = range(0, len(self), ROWS_UNPACKED_MAX)
        return sum(self._checksum(start, min(start + ROWS_UNPACKED_MAX, len(self))) for start in starts)

    def _checksum(self, start: int, end: int) -> int:
        crcs: Any = repeat(0)
        if not isinstance(self.topics, str):
            crcs = map(crc32c, [topic.encode() for topic in self.topics[start:end]], crcs)
        if self.keys is not None:
            crcs = map(crc32c, without_nulls(self.keys.unpacked(start, end)), crcs)
        if self.headers is not None:
            crcs = map(
                crc32c, [repr(headers).encode() for headers in self.headers.unpacked(start, end)], crcs
            )
        if self.partitions is not None:
            crcs = map(crc32c, [b"%d" % partition for partition in self.partitions[start:end]], crcs)
        return sum(map(crc32c, without_nulls(self.values.unpacked(start, end)), crcs))


def ranges(firsts: Any, counts: Any) -> Any:
    """The numbers of every range, one range after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(counts.sum())


def without_nulls(column: list[bytes | None]) -> list[bytes]:
    return [NULL if item is None else item for item in column]
