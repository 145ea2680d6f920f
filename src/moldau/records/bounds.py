"""How much of one batch may be unfolded and walked where: on the loop, in a thread, in the one thread for the largest.

What a batch will cost is known before it is paid: by its size, its codec and the count of records in its header, and
unfolding ends at a limit. Whoever meets a batch that is beyond its bounds raises `TooMuch`, and the next larger bounds
take it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from moldau.base.limits import (
    ASIDE_RECORDS_MAX,
    ASIDE_UNFOLDED_BYTES_MAX,
    PACKED_INLINE_BYTES_MAX,
    RECORDS_INLINE_MAX,
    UNFOLDED_INLINE_BYTES_MAX,
)
from moldau.records.batch import BatchHeader
from moldau.records.compression import DECOMPRESSED_BYTES_MAX
from moldau.records.record import BadRecord, RecordsTooLarge, records_of
from moldau.runtime.ports import Buffer

_ANY = 2**31
E = TypeVar("E", bound=BaseException)


class TooMuch(Exception):
    """A batch takes more than whoever looks at it may spend here."""


class Bounds(NamedTuple):
    plain_bytes: int
    packed_bytes: int
    unfolded_bytes: int
    records: int

    def allow(self, header: BatchHeader) -> bool:
        """Whether a batch is small enough, as far as its header says."""
        size_max = self.packed_bytes if header.codec_id else self.plain_bytes
        return header.size <= size_max and header.count <= self.records

    def records_of(self, batch: Buffer, header: BatchHeader) -> Buffer:
        """The records' bytes, unfolded. TooMuch beyond these bounds; BadRecord for damaged data, and for what no batch
        may unfold to."""
        if not self.allow(header):
            raise TooMuch
        try:
            return records_of(batch, header, self.unfolded_bytes if header.codec_id else _ANY)
        except RecordsTooLarge:
            if self.unfolded_bytes < DECOMPRESSED_BYTES_MAX:
                raise TooMuch from None
            raise


INLINE = Bounds(
    UNFOLDED_INLINE_BYTES_MAX, PACKED_INLINE_BYTES_MAX, UNFOLDED_INLINE_BYTES_MAX, RECORDS_INLINE_MAX
)
ASIDE = Bounds(
    ASIDE_UNFOLDED_BYTES_MAX, ASIDE_UNFOLDED_BYTES_MAX, ASIDE_UNFOLDED_BYTES_MAX, ASIDE_RECORDS_MAX
)
HEAVY = Bounds(_ANY, _ANY, DECOMPRESSED_BYTES_MAX, _ANY)


def without_traces(error: E) -> E:
    """The error alone. Its tracebacks lead to frames, and these to 100 MB of unfolded records, for as long as somebody
    has the error; and where it is found in a frame of its own traceback, until the garbage is collected."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def is_inline(batch: Buffer, header: BatchHeader) -> bool:
    """Whether a batch can be walked on the loop. Unfolds what is small, as far as it may."""
    if not INLINE.allow(header):
        return False
    if header.codec_id:
        try:
            INLINE.records_of(batch, header)
        except TooMuch:
            return False
        except BadRecord:
            pass  # said when it is walked
    return True
