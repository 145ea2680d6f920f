"""lz4 and zstd straight into a buffer, by the C functions in the libraries of the packages `lz4` and `zstandard`.

What these packages offer to Python makes an object of each batch, which is then copied; cramjam writes where it is told
to, but sets a decoder up for each batch. Both take as long as half of the work itself, at 16 KB. Here one decoder of a
process is used again and again. Names that a library does not show, as on Windows, leave this way out.

The functions are the stable ones of lz4frame.h and zstd.h: they check all that they read, and write no further than
they may. They are called with Python's lock held, so that threads can share a decoder.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_size_t, c_ssize_t, c_uint, c_void_p
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow as pa

from moldau.records.compression import Codec

Direct = Callable[[memoryview, int, int], int]
"""Unfolds all of the data to an address with room for so many bytes: how many there are, or less than 0 where it
does not, for whatever reason; something may have been written then."""

LZ4F_VERSION: Final = 100
ZSTD_HEAD_BYTES: Final = 6
"""Magic number, what is in the head, and the window where the frame is not one segment."""
ZSTD_ONE_SEGMENT: Final = 0x20
ZSTD_WINDOW_MAX: Final = (27 - 10) << 3
"""The largest window that zstd takes from a stream, 128 MB, as it stands in a frame's head."""


@cache
def direct(codec: Codec) -> Direct | None:
    """None where the library is not installed, or has not what is needed."""
    try:
        if codec is Codec.LZ4:
            return _lz4(library_of("lz4", "frame/_frame"))
        if codec is Codec.ZSTD:
            return _zstd(library_of("zstandard", "_cffi"))
    except (ImportError, OSError, AttributeError):
        pass
    return None


def library_of(package: str, module: str) -> ctypes.PyDLL:
    """Of an extension module, without importing it."""
    found = find_spec(package)
    if found is None or found.submodule_search_locations is None:
        raise ImportError(package)
    path = Path(found.submodule_search_locations[0], module)
    extension = PathFinder.find_spec(path.name, [str(path.parent)])
    if extension is None or extension.origin is None:
        raise ImportError(str(path))
    return ctypes.PyDLL(extension.origin)


def _lz4(library: ctypes.PyDLL) -> Direct:
    create = library.LZ4F_createDecompressionContext
    create.argtypes, create.restype = (POINTER(c_void_p), c_uint), c_size_t
    free = library.LZ4F_freeDecompressionContext
    free.argtypes, free.restype = (c_void_p,), c_size_t
    unfold = library.LZ4F_decompress
    unfold.argtypes, unfold.restype = (c_void_p,) * 6, c_size_t
    decoder, written, taken = c_void_p(), c_size_t(), c_size_t()
    written_at, taken_at = byref(written), byref(taken)

    def begin() -> None:
        if create(byref(decoder), LZ4F_VERSION):
            raise MemoryError

    def unfold_frame(packed: memoryview, target: int, room: int) -> int:
        source = pa.py_buffer(packed)
        size = len(packed)
        written.value, taken.value = room, size
        if unfold(decoder, target, written_at, source.address, taken_at, None) or taken.value != size:
            free(decoder)  # in 1.9.4 what the reset leaves behind has later frames refused
            begin()
            return -1
        return written.value

    begin()
    return unfold_frame


def _zstd(library: ctypes.PyDLL) -> Direct:
    create = library.ZSTD_createDCtx
    create.argtypes, create.restype = (), c_void_p
    unfold = library.ZSTD_decompressDCtx
    unfold.argtypes, unfold.restype = (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t), c_ssize_t
    decoder = create()
    if not decoder:
        raise MemoryError

    def unfold_frames(packed: memoryview, target: int, room: int) -> int:
        if len(packed) < ZSTD_HEAD_BYTES or (
            packed[4] & ZSTD_ONE_SEGMENT == 0 and packed[5] > ZSTD_WINDOW_MAX
        ):
            return -1
        source = pa.py_buffer(packed)
        size: int = unfold(decoder, target, room, source.address, len(packed))
        return size

    return unfold_frames
