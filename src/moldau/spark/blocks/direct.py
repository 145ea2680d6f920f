"""lz4 and zstd straight into a buffer, by the C functions in the libraries of the packages `lz4` and `zstandard`.

What these packages offer to Python makes an object of each batch, which is then copied; cramjam writes where it is told
to, but sets a decoder up for each batch. Both take as long as half of the work itself, at 16 KB. Here one decoder of a
process is used again and again. Names that a library does not show, as on Windows, leave this way out.

The functions are the stable ones of lz4frame.h and zstd.h: they check all that they read, and write no further than
they may. They are called with Python's lock held, so that threads can share a decoder.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_size_t, c_ssize_t, c_uint, c_void_p
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from moldau.records.compression import Codec

LZ4F_VERSION: Final = 100
ZSTD_HEAD_BYTES: Final = 6
"""Magic number, what is in the head, and the window where the frame is not one segment."""
ZSTD_ONE_SEGMENT: Final = 0x20
ZSTD_WINDOW_MAX: Final = (27 - 10) << 3
"""The largest window that zstd takes from a stream, 128 MB, as it stands in a frame's head."""


class Direct(Protocol):
    function: int
    """Addresses, for compiled code."""
    decoder: int

    def unfold(self, packed: memoryview, target: int, room: int) -> int:
        """Unfold all of the data to an address with room for so many bytes: how many there are.

        Less than 0 where it does not, for whatever reason; something may have been written then.
        """

    def renew(self) -> None:
        """After the function has failed."""


@cache
def direct(codec: Codec) -> Direct | None:
    """None where the library is not installed, or has not what is needed."""
    try:
        if codec is Codec.LZ4:
            return Lz4(library_of("lz4", "frame/_frame"))
        if codec is Codec.ZSTD:
            return Zstd(library_of("zstandard", "_cffi"))
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


class Lz4:
    def __init__(self, library: ctypes.PyDLL) -> None:
        self._create = library.LZ4F_createDecompressionContext
        self._create.argtypes, self._create.restype = (POINTER(c_void_p), c_uint), c_size_t
        self._free = library.LZ4F_freeDecompressionContext
        self._free.argtypes, self._free.restype = (c_void_p,), c_size_t
        self._unfold = library.LZ4F_decompress
        self._unfold.argtypes, self._unfold.restype = (c_void_p,) * 6, c_size_t
        self._written, self._taken = c_size_t(), c_size_t()
        self._written_at, self._taken_at = byref(self._written), byref(self._taken)
        self.function = _address_of(self._unfold)
        self.decoder = self._new()

    def unfold(self, packed: memoryview, target: int, room: int) -> int:
        source = pa.py_buffer(packed)
        size = len(packed)
        self._written.value, self._taken.value = room, size
        left = self._unfold(self.decoder, target, self._written_at, source.address, self._taken_at, None)
        if left or self._taken.value != size:
            self.renew()
            return -1
        return self._written.value

    def renew(self) -> None:
        """What the reset of lz4 1.9.4 leaves behind has later frames refused: so by another decoder."""
        new = self._new()
        self._free(self.decoder)
        self.decoder = new

    def _new(self) -> int:
        decoder = c_void_p()
        if self._create(byref(decoder), LZ4F_VERSION) or not decoder.value:
            raise MemoryError
        return decoder.value


class Zstd:
    def __init__(self, library: ctypes.PyDLL) -> None:
        create = library.ZSTD_createDCtx
        create.argtypes, create.restype = (), c_void_p
        self._unfold = library.ZSTD_decompressDCtx
        self._unfold.argtypes = (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)
        self._unfold.restype = c_ssize_t
        self.function = _address_of(self._unfold)
        self.decoder: int = create()
        if not self.decoder:
            raise MemoryError

    def unfold(self, packed: memoryview, target: int, room: int) -> int:
        if len(packed) < ZSTD_HEAD_BYTES or (
            packed[4] & ZSTD_ONE_SEGMENT == 0 and packed[5] > ZSTD_WINDOW_MAX
        ):
            return -1
        source = pa.py_buffer(packed)
        size: int = self._unfold(self.decoder, target, room, source.address, len(packed))
        return size

    def renew(self) -> None:
        """Nothing of a frame is left in it."""


def _address_of(function: Any) -> int:
    return ctypes.cast(function, c_void_p).value or 0
