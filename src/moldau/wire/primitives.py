"""What messages are made of: varints, strings, tagged fields; and the error for bytes that are none of these.

Only what the hand-written codecs need. Functions that read raise IndexError where the buffer ends and WireError
where a length is a lie; functions that write trust their arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from moldau.base.limits import TAGGED_FIELDS_MAX


class WireError(Exception):
    """The peer's bytes are not the message that they claim to be: close the connection."""


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise WireError("varint of more than five bytes")
    if value >> 32:
        raise WireError("varint of more than 32 bits")
    return value, position


def skip_tagged_fields(view: memoryview, position: int) -> int:
    """The position after a section of tagged fields."""
    count, position = read_uvarint(view, position)
    stop = len(view)
    if count > TAGGED_FIELDS_MAX:
        raise WireError(f"{count} tagged fields (allowed: {TAGGED_FIELDS_MAX})")
    for _ in range(count):
        _, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        position += size
        if position > stop:
            raise WireError("a tagged field reaches past the end of the message")
    return position


def pack_uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:  # lengths of record sets are mostly of this size
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + pack_uvarint(value >> 7)


class _Uvarints(dict[int, bytes]):
    """Encoded varints: the short ones from a table, the others made on demand and not kept."""

    def __missing__(self, value: int) -> bytes:
        return pack_uvarint(value)


UVARINTS: Final = _Uvarints({value: pack_uvarint(value) for value in range(256)})

_INT16: Final = Struct(">h")
_NULL_STRING: Final = _INT16.pack(-1)
_ENDPOINT_PORT: Final = Struct(">i")


def pack_string(text: str | None, flexible: bool) -> bytes:
    """A string or a null."""
    if text is None:
        return b"\0" if flexible else _NULL_STRING
    data = text.encode()
    return (UVARINTS[len(data) + 1] if flexible else _INT16.pack(len(data))) + data


def pack_tagged_fields(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields, given in order of their tags."""
    pieces = [UVARINTS[tag] + UVARINTS[len(value)] + value for tag, value in fields]
    return UVARINTS[len(pieces)] + b"".join(pieces)


NodeEndpoint = tuple[int, str, int, str | None]  # node id, host, port, rack


def pack_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields at the end of a Produce or Fetch response: where the new leaders are (KIP-951)."""
    if not endpoints:
        return b"\0"
    pieces = [UVARINTS[len(endpoints) + 1]]
    for node_id, host, port, rack in endpoints:
        pieces += _ENDPOINT_PORT.pack(node_id), pack_string(host, True), _ENDPOINT_PORT.pack(port)
        pieces += pack_string(rack, True), b"\0"
    return pack_tagged_fields([(0, b"".join(pieces))])
