"""The codecs of record batches, in the framings that Kafka's clients use.

gzip and zstd are plain streams. Snappy is written in the block stream of the Java library ("xerial"), and
read in that or as one raw block, as some clients send it. LZ4 is the frame format with independent blocks of
64 KB: the reader of Kafka's Java client refuses linked blocks, so the frame is put together here.

Decompression never allocates more than its limit: a bomb is refused with `DecompressionRefused`.
"""

from __future__ import annotations

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
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = Struct(">i")
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # version 1, independent blocks, no checksums, blocks of 64 KB
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 0x80000000
_LZ4_END = b"\x00\x00\x00\x00"


class DecompressionRefused(ValueError):
    """Damaged data, or more of it than the limit allows."""


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
            raise DecompressionRefused(f"{len(data)} bytes are more than the limit of {limit_bytes}")
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


def _decompress_stream(into: object, data: Buffer, limit_bytes: int) -> memoryview:
    """The decoders stop when the output is full, so guess its size and double it up to the limit."""
    guess = min(limit_bytes, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        output = bytearray(guess)
        try:
            length = into(data, output)  # type: ignore[operator]
        except cramjam.DecompressionError as failure:
            if "write whole buffer" not in str(failure):
                raise
            if guess >= limit_bytes:
                raise DecompressionRefused(f"unfolds to more than the limit of {limit_bytes} bytes") from None
            guess = min(limit_bytes, 4 * guess)
        else:
            return memoryview(output)[:length]


def _compress_snappy(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, max(1, len(data)), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += _XERIAL_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit_bytes)
    if len(data) <= len(_XERIAL_HEADER):
        raise DecompressionRefused("snappy stream ends within its header")
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        try:
            (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        except error:
            raise DecompressionRefused("snappy stream ends within a block length") from None
        position += _XERIAL_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise DecompressionRefused("snappy stream ends within a block")
        out += _snappy_block(data[position : position + length], limit_bytes - len(out))
        position += length
    return bytes(out)


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    if not block:
        raise DecompressionRefused("empty snappy block")
    if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
        raise DecompressionRefused("snappy block unfolds to more than the limit")
    return bytes(cramjam.snappy.decompress_raw(block))


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
