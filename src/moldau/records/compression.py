"""The codecs of record batches, in the framings that Kafka's clients use.

gzip and zstd are plain streams. Snappy is written in the block stream of the Java library ("xerial"), and
read in that or as one raw block, as some clients send it. LZ4 is the frame format with independent blocks of
64 KB: the reader of Kafka's Java client refuses linked blocks, so the frame is put together here.

Decompression never allocates more than its limit: a bomb is refused with `UnfoldsTooFar`. It lets the interpreter's
lock go, also while large memory is made: pages that nobody has touched are mapped for it, where a bytearray would be
cleared with the lock held. So a thread that unfolds 100 MB delays nobody.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct, error

import cramjam

from moldau.runtime.ports import Buffer


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_BY_NAME = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024
"""No batch may unfold to more: as much as the largest request (`socket.request.max.bytes`) could carry."""
LZ4_FAST_LEVEL = 9
"""Kafka's default level of lz4 stands for the fast compressor, every other level for the high one."""

_FIRST_GUESS_BYTES = 64 * 1024
_MAPPED_BYTES_MIN = 1024 * 1024
_RATIO_MAX = {Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255}
"""How far the formats can unfold at most, by their shortest way to say "the same again"; zstd's is 30,000."""
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = Struct(">i")
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # version 1, independent blocks, no checksums, blocks of 64 KB
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 0x80000000
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_TELLS_SIZE = 0x08
_LZ4_SIZE_POSITION = 6
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SIZE_BYTES = (0, 2, 4, 8)
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)
_ZSTD_BLOCKS_MAX = 64
"""Blocks of a frame that are gone through to see that no second frame follows."""


class DecompressionRefused(ValueError):
    """Damaged data, or more of it than the limit allows."""


class UnfoldsTooFar(DecompressionRefused):
    """More data than the limit allows."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"unfolds to more than the limit of {limit_bytes} bytes")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`level` is Kafka's number for the codec; None (or gzip's -1) is the codec's default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=None if level in (None, -1) else level))
    if codec is Codec.SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec is Codec.LZ4:
        return _compress_lz4(memoryview(data), LZ4_FAST_LEVEL if level is None else level)
    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | memoryview:
    if codec is Codec.NONE:
        if len(data) > limit_bytes:
            raise UnfoldsTooFar(limit_bytes)
        return memoryview(data)
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit_bytes)
        into = {
            Codec.GZIP: cramjam.gzip.decompress_into,
            Codec.LZ4: cramjam.lz4.decompress_into,
            Codec.ZSTD: cramjam.zstd.decompress_into,
        }[codec]
        return _decompress_stream(into, data, limit_bytes)
    except cramjam.DecompressionError as failure:
        raise DecompressionRefused(str(failure)) from None


def _room(length: int) -> memoryview:
    return memoryview(bytearray(length) if length < _MAPPED_BYTES_MIN else mmap.mmap(-1, length))


def _decompress_stream(into: object, data: Buffer, limit_bytes: int) -> memoryview:
    """The decoders stop when the output is full, so guess its size; what is larger gets room up to the limit, of which
    only the part that is written to takes memory."""
    guess = min(limit_bytes, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        output = _room(guess)
        try:
            length = into(data, output)  # type: ignore[operator]
        except cramjam.DecompressionError as failure:
            if "write whole buffer" not in str(failure):
                raise
            if guess >= limit_bytes:
                raise UnfoldsTooFar(limit_bytes) from None
            guess = min(limit_bytes, 4 * guess) if guess < _MAPPED_BYTES_MIN else limit_bytes
        else:
            return output[:length]


def unfolded_bytes_max(codec: Codec, data: Buffer) -> int:
    """How much compressed data can unfold to, by its own word where it gives one; without unfolding it."""
    packed = memoryview(data)
    told = None
    if codec is Codec.ZSTD:
        told = _zstd_size(packed)
    elif codec is Codec.LZ4 and len(packed) >= _LZ4_SIZE_POSITION + 8:
        if packed[4] & _LZ4_TELLS_SIZE:
            told = int.from_bytes(packed[_LZ4_SIZE_POSITION : _LZ4_SIZE_POSITION + 8], "little")
    elif codec is Codec.SNAPPY and bytes(packed[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        told = _snappy_size(packed)
    if told is None:
        told = len(packed) * _RATIO_MAX.get(codec, DECOMPRESSED_BYTES_MAX)
    return min(told, DECOMPRESSED_BYTES_MAX)


def _zstd_size(packed: memoryview) -> int | None:
    """What the only frame says that it unfolds to; None where it does not, or others may follow."""
    if len(packed) < 6 or packed[:4] != _ZSTD_MAGIC:
        return None
    flags = packed[4]
    is_one_segment = flags & 0x20
    size_bytes = _ZSTD_SIZE_BYTES[flags >> 6] or (1 if is_one_segment else 0)
    at = 5 + (0 if is_one_segment else 1) + _ZSTD_DICTIONARY_BYTES[flags & 3]
    if not size_bytes or len(packed) < at + size_bytes:
        return None
    told = int.from_bytes(packed[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    at += size_bytes
    for _ in range(_ZSTD_BLOCKS_MAX):
        block = int.from_bytes(packed[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if block & 1:
            return told if at + (4 if flags & 4 else 0) >= len(packed) else None
    return None


def _snappy_size(packed: memoryview) -> int | None:
    try:
        return int(cramjam.snappy.decompress_raw_len(packed)) if packed else None
    except cramjam.DecompressionError:
        return None


def _compress_snappy(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, max(1, len(data)), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += _XERIAL_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> memoryview:
    total = 0
    for block in _snappy_blocks(data):
        total += cramjam.snappy.decompress_raw_len(block)
        if total > limit_bytes:
            raise UnfoldsTooFar(limit_bytes)
    output = _room(total)
    position = 0
    for block in _snappy_blocks(data):
        position += cramjam.snappy.decompress_raw_into(block, output[position:])
    return output


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        if not data:
            raise DecompressionRefused("empty snappy block")
        yield data
        return
    if len(data) <= len(_XERIAL_HEADER):
        raise DecompressionRefused("snappy stream ends within its header")
    position = len(_XERIAL_HEADER)
    while position < len(data):
        try:
            (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        except error:
            raise DecompressionRefused("snappy stream ends within a block length") from None
        position += _XERIAL_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise DecompressionRefused("snappy stream ends within a block")
        yield data[position : position + length]
        position += length


def _compress_lz4(data: memoryview, level: int) -> bytes:
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = _lz4_block(block, level)
        if len(packed) < len(block):
            out += _LZ4_LENGTH.pack(len(packed))
            out += packed
        else:
            out += _LZ4_LENGTH.pack(len(block) | _LZ4_STORED)
            out += block
    out += _LZ4_END
    return bytes(out)


def _lz4_block(block: memoryview, level: int) -> bytes:
    if level == LZ4_FAST_LEVEL:
        return bytes(cramjam.lz4.compress_block(block, store_size=False))
    return bytes(
        cramjam.lz4.compress_block(block, store_size=False, mode="high_compression", compression=level)
    )
