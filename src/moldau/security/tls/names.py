"""A certificate's subject as text: RFC 2253, as Java's `X500Principal.getName()` prints it, letter by letter.

ACLs name principals by this text, so that it must be Kafka's to be of use: the last part first, hexadecimal for types
that RFC 2253 has no word for (an e-mail address is `1.2.840.113549.1.9.1=#16...`), and its own way of escaping.
"""

from __future__ import annotations

from collections.abc import Iterator

_WORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of values that are printed as text: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString.
Java takes all of them for UTF-8, which is right for ASCII and for the first."""
_ESCAPED = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """Of a certificate as DER; ValueError where it is none."""
    from cryptography import x509

    try:
        return rfc_2253(x509.load_der_x509_certificate(certificate).subject.public_bytes())
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from None


def rfc_2253(name: bytes) -> str:
    """Of a Name as DER; ValueError where it is malformed."""
    parts = [
        "+".join(_attribute(*_two(attribute)) for attribute in _inside(part, _SET))
        for part in _inside(_only(name), _SEQUENCE)
    ]
    return ",".join(reversed(parts))


Element = tuple[int, bytes, bytes]
"""Tag, content, and the whole."""


def _elements(data: bytes) -> Iterator[Element]:
    position = 0
    while position < len(data):
        if len(data) - position < 2:
            raise ValueError("a name is cut short")
        tag, length = data[position], data[position + 1]
        start = position + 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[start : start + count], "big")
            start += count
        stop = start + length
        if stop > len(data):
            raise ValueError("a name is cut short")
        yield tag, data[start:stop], data[position:stop]
        position = stop


def _only(data: bytes) -> Element:
    elements = list(_elements(data))
    if len(elements) != 1:
        raise ValueError("a name is not one element")
    return elements[0]


def _inside(element: Element, tag: int) -> Iterator[Element]:
    if element[0] != tag:
        raise ValueError("a name has another form")
    return _elements(element[1])


def _two(attribute: Element) -> tuple[Element, Element]:
    inside = list(_inside(attribute, _SEQUENCE))
    if len(inside) != 2 or inside[0][0] != _OID:
        raise ValueError("a name has another form")
    return inside[0], inside[1]


def _attribute(type_: Element, value: Element) -> str:
    oid = _oid(type_[1])
    word = _WORDS.get(oid)
    if word is None or value[0] not in _STRINGS:
        return f"{word or oid}=#{value[2].hex()}"
    return f"{word}={_escaped(value[1].decode('utf-8', 'replace'))}"


def _oid(data: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("a name has an empty type")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    body = "".join(
        f"\\{letter}" if letter in _ESCAPED else "\\00" if letter == "\0" else letter for letter in text
    )
    inner = body.strip(" \r")
    if not inner:
        return "".join(f"\\{letter}" for letter in body)
    start = body.index(inner)
    lead, trail = body[:start], body[start + len(inner) :]
    return "".join(f"\\{letter}" for letter in lead) + inner + "".join(f"\\{letter}" for letter in trail)
