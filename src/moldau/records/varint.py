"""Zigzag variable-length integers, as records use them (at most 5 bytes for 32 bits, 10 for 64)."""

from __future__ import annotations

from moldau.runtime.ports import Buffer

_SMALL = [bytes((n,)) for n in range(128)]


class BadVarint(ValueError):
    pass


def encode(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    if zigzag < 128:
        return _SMALL[zigzag]
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def decode(buffer: Buffer, position: int, bytes_max: int = 5) -> tuple[int, int]:
    """The number at a position and the position after it; IndexError at the end of the buffer."""
    byte = buffer[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    zigzag = byte & 127
    for index in range(1, bytes_max):
        byte = buffer[position + index]
        zigzag |= (byte & 127) << (7 * index)
        if byte < 128:
            number = (zigzag >> 1) ^ -(zigzag & 1)
            return number, position + index + 1
    raise BadVarint("variable-length integer is too long")
