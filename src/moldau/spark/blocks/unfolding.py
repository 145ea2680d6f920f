"""Compressed batches into one buffer, which is used again and again.

The codecs write where they are told to, so that all batches of a block lie in one piece and nothing is copied twice.
How large a batch unfolds is known afterwards only: there is room for four times its size at first, and then for more,
up to `DECOMPRESSED_BYTES_MAX`.

Batches of a usual size are first tried with `zstandard` and `lz4`, where they are installed: cramjam sets a decoder up
for each batch, which takes as long as the work itself. What these do not take, for whatever reason, goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import cramjam

from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec, DecompressionRefused, decompress

GUESS_BYTES_MIN: Final = 64 * 1024
BUFFER_BYTES: Final = 4 * 1024 * 1024
QUICK_BYTES_MAX: Final = 1024 * 1024
"""What the quick way unfolds at most."""
_FULL: Final = "write whole buffer"
_INTO: Final = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


Quick = Callable[[memoryview, int], bytes | None]
"""Unfolds to at most so many bytes; None where it does not."""


def _quick_zstd() -> Quick | None:
    try:
        import zstandard
    except ImportError:
        return None
    decoder: Any = zstandard.ZstdDecompressor()

    def unfold(packed: memoryview, room: int) -> bytes | None:
        try:
            if zstandard.frame_content_size(packed) > room:  # it would believe that, and allocate it
                return None
            data: bytes = decoder.decompress(packed, max_output_size=room, allow_extra_data=False)
        except zstandard.ZstdError:
            return None
        return data

    return unfold


def _quick_lz4() -> Quick | None:
    try:
        from lz4.frame import LZ4FrameDecompressor
    except ImportError:
        return None

    def unfold(packed: memoryview, room: int) -> bytes | None:
        decoder: Any = LZ4FrameDecompressor()
        try:
            data: bytes = decoder.decompress(packed, max_length=room)
        except RuntimeError:
            return None
        return data if decoder.eof and not decoder.unused_data else None

    return unfold


_QUICK: Final = {Codec.ZSTD: _quick_zstd(), Codec.LZ4: _quick_lz4()}


class Unfolded:
    """A buffer with what was put into it one after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # most readers of a few records never need it
        self.size = 0

    @property
    def data(self) -> memoryview:
        return memoryview(self._buffer)[: self.size]

    def clear(self) -> None:
        """What was put in is gone, or will be by and by."""
        self.size = 0

    def put(self, codec: Codec, packed: memoryview) -> None:
        """DecompressionRefused for damaged data, or more than a batch may have."""
        into = _INTO.get(codec)
        if into is None:
            self._append(decompress(codec, packed, DECOMPRESSED_BYTES_MAX))
            return
        guess = max(GUESS_BYTES_MIN, 4 * len(packed))
        quick = _QUICK.get(codec)
        if quick is not None and (data := quick(packed, min(guess, QUICK_BYTES_MAX))) is not None:
            self._append(data)
            return
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
