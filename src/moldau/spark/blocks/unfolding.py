"""Compressed batches into one buffer, which is used again and again.

The codecs write where they are told to, so that all batches of a block lie in one piece and nothing is copied twice.
Batches of lz4 and zstd are first tried by `direct`; what that does not take, for whatever reason, goes to cramjam. How
large a batch unfolds is known afterwards only: cramjam gets room for four times its size at first, and then for more,
up to `DECOMPRESSED_BYTES_MAX`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import cramjam
import numpy as np

from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec, DecompressionRefused, decompress
from moldau.spark.blocks.direct import direct

GUESS_BYTES_MIN: Final = 64 * 1024
BUFFER_BYTES: Final = 4 * 1024 * 1024
DIRECT_BYTES_MAX: Final = 1024 * 1024
"""What the direct way unfolds at most."""
_FULL: Final = "write whole buffer"
_INTO: Final = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


UnfoldBatches = Callable[..., tuple[int, int]]
"""That of `kernel_unfold`."""
Arrays = tuple[Any, Any, Any]
"""The records of an answer, where batches begin and end in them, and the decoder's table, which is filled."""


def tabulate(unfold_batches: UnfoldBatches, arrays: Arrays) -> int:
    """The table alone, for batches that are not compressed: the one before which it has ended."""
    records, spans, table = arrays
    sizes: Any = np.empty(2, np.int64)
    done, _ = unfold_batches(0, 0, False, records, spans, 0, 0, 0, 0, 0, 0, sizes, table)
    return done


class Unfolded:
    """A buffer with what was put into it one after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # most readers of a few records never need it
        self._address = 0
        self.size = 0

    @property
    def data(self) -> memoryview:
        return memoryview(self._buffer)[: self.size]

    def clear(self) -> None:
        """What was put in is gone, or will be by and by."""
        self.size = 0

    def put(self, codec: Codec, packed: memoryview) -> None:
        """DecompressionRefused for damaged data, or more than a batch may have."""
        unfold = direct(codec)
        if unfold is not None:
            if self.size + DIRECT_BYTES_MAX > len(self._buffer):
                self._make_room(DIRECT_BYTES_MAX)
            size = unfold.unfold(packed, self._address + self.size, DIRECT_BYTES_MAX)
            if size >= 0:
                self.size += size
                return
        into = _INTO.get(codec)
        if into is None:
            self._append(decompress(codec, packed, DECOMPRESSED_BYTES_MAX))
        else:
            self._put_by_guesses(into, packed)

    def put_many(
        self, unfold_batches: UnfoldBatches, codec: Codec, arrays: Arrays, first: int, enough: int
    ) -> int:
        """Batches from `first` on by compiled code, to `enough` bytes: the one before which that has ended."""
        records, spans, table = arrays
        unfold = direct(codec)
        if unfold is None:
            return first
        sizes: Any = np.empty(2, np.int64)
        while True:
            first, self.size = unfold_batches(
                unfold.function, unfold.decoder, codec is Codec.LZ4, records, spans, first,
                self._address, self.size, len(self._buffer), DIRECT_BYTES_MAX, enough, sizes, table,
            )  # fmt: skip
            if first == len(spans) or self.size >= enough:
                return first
            if self.size + DIRECT_BYTES_MAX <= len(self._buffer):
                unfold.renew()
                return first
            self._make_room(DIRECT_BYTES_MAX)

    def _put_by_guesses(self, into: Callable[[memoryview, memoryview], int], packed: memoryview) -> None:
        guess = max(GUESS_BYTES_MIN, 4 * len(packed))
        while True:
            guess = min(guess, DECOMPRESSED_BYTES_MAX)
            self._make_room(guess)
            try:
                with memoryview(self._buffer) as view:
                    self.size += into(packed, view[self.size : self.size + guess])
                    return
            except cramjam.DecompressionError as failure:
                if _FULL not in str(failure):
                    raise DecompressionRefused(str(failure)) from None
                if guess >= DECOMPRESSED_BYTES_MAX:
                    raise DecompressionRefused(f"unfolds to more than {guess} bytes") from None
                guess *= 4

    def _append(self, data: bytes | memoryview) -> None:
        self._make_room(len(data))
        self._buffer[self.size : self.size + len(data)] = data
        self.size += len(data)

    def _make_room(self, size: int) -> None:
        if self.size + size > len(self._buffer):
            grown = bytearray(max(BUFFER_BYTES, 2 * len(self._buffer), self.size + size))
            grown[: self.size] = memoryview(self._buffer)[: self.size]
            self._buffer = grown  # a new one: whoever looks at the old one still may
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(grown))
