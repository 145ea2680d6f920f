"""Messages as text: how one is written to stdout, and how one is read from a line of stdin.

Output is a template with placeholders (`{key}`, `{value}`, `{offset}`, ...) or one JSON object per message;
input is a line, split into key and value, or the same JSON. Bytes that are no UTF-8 pass through a pipe
unchanged, appear escaped on a terminal, and stand in JSON as `key_base64` / `value_base64`, so that JSON out
and JSON in is a true copy.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from moldau.cli.errors import CliError, did_you_mean, usage

# Made once: json.dumps with any option builds an encoder for every call.
to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Headers = list[tuple[str, bytes | None]]
ENCODINGS = ("text", "hex", "base64")
PLACEHOLDERS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "time",
    "key",
    "value",
    "headers",
    "header.NAME",
    "size",
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "\\": "\\"}
# What would move the cursor or change the terminal's state; tabs and line ends are left to work.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def unescape(text: str) -> str:
    r"""`\n`, `\t`, `\r`, `\0`, `\e`, `\\` and `\xNN`, as people write them in a shell."""

    def replace(match: re.Match[str]) -> str:
        found = match.group(1)
        return chr(int(found[1:], 16)) if found[0] == "x" else ESCAPES[found]

    return re.sub(r"\\(x[0-9a-fA-F]{2}|[ntr0e\\])", replace, text)


def terminal_safe(data: bytes) -> bytes:
    text = data.decode("utf-8", "backslashreplace")
    return CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text).encode()


def encoder(encoding: str, null: bytes, *, terminal: bool) -> Callable[[bytes | None], bytes]:
    """How a key or value is written."""
    writers: dict[str, Callable[[bytes], bytes]] = {
        "text": terminal_safe if terminal else bytes,
        "hex": binascii.hexlify,
        "base64": base64.b64encode,
    }
    write = writers[encoding]
    return lambda data: null if data is None else write(data)


@dataclass(frozen=True)
class Rendering:
    """How messages are written."""

    key: Callable[[bytes | None], bytes]
    value: Callable[[bytes | None], bytes]
    delimiter: bytes = b"\n"


def compile_template(template: str, rendering: Rendering) -> Callable[[Any], bytes]:
    """A function from a message of confluent-kafka to its bytes. `{{` and `}}` are braces."""
    if template == "{value}":
        write, delimiter = rendering.value, rendering.delimiter
        return lambda message: write(message.value()) + delimiter
    parts = [piece(token, rendering) for token in re.findall(r"\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}]", template)]
    parts.append(lambda _message: rendering.delimiter)
    return lambda message: b"".join([part(message) for part in parts])


def piece(token: str, rendering: Rendering) -> Callable[[Any], bytes]:
    if token in ("{{", "}}") or token[0] not in "{}":
        literal = (token[0] if token in ("{{", "}}") else unescape(token)).encode()
        return lambda _message: literal
    name = token[1:-1].strip()
    if name.startswith("header."):
        wanted = name.removeprefix("header.")
        return lambda message: rendering.value(dict(message.headers() or ()).get(wanted))
    pieces: dict[str, Callable[[Any], bytes]] = {
        "topic": lambda message: message.topic().encode(),
        "partition": lambda message: b"%d" % message.partition(),
        "offset": lambda message: b"%d" % message.offset(),
        "timestamp": lambda message: b"%d" % message.timestamp()[1],
        "time": lambda message: readable_time(message.timestamp()[1]).encode(),
        "key": lambda message: rendering.key(message.key()),
        "value": lambda message: rendering.value(message.value()),
        "headers": lambda message: render_headers(message.headers() or (), rendering),
        "size": lambda message: b"%d" % len(message.value() or b""),
    }
    if name not in pieces:
        known = " ".join("{" + placeholder + "}" for placeholder in PLACEHOLDERS)
        raise usage(
            f"'{token}' is no placeholder of --format.", f"There are: {known}; write {{{{ for a brace."
        )
    return pieces[name]


def render_headers(headers: Any, rendering: Rendering) -> bytes:
    return b",".join(name.encode() + b"=" + rendering.value(value) for name, value in headers)


def readable_time(timestamp_ms: int) -> str:
    """The local time with its zone, to the millisecond; `-` where the message has none."""
    if timestamp_ms < 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")


def json_line(message: Any, *, parse_values: bool = False) -> bytes:
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
    }
    put_bytes(document, "key", message.key())
    put_bytes(document, "value", message.value(), parse=parse_values)
    headers = []
    for name, value in message.headers() or ():
        header: dict[str, Any] = {"key": name}
        put_bytes(header, "value", value)
        headers.append(header)
    document["headers"] = headers
    return to_json(document).encode() + b"\n"


def put_bytes(document: dict[str, Any], name: str, data: bytes | None, *, parse: bool = False) -> None:
    if data is None:
        document[name] = None
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        document[f"{name}_base64"] = base64.b64encode(data).decode()
        return
    document[name] = text
    if parse:
        try:
            document[name] = json.loads(text)
        except ValueError:
            pass


class Outgoing(NamedTuple):
    """A message that is to be produced; what is None is left to the options, the client or the topic."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class LineReader:
    """Reads a message from a piece of the input."""

    key_separator: bytes | None = None
    null: bytes | None = None
    key_encoding: str = "text"
    value_encoding: str = "text"

    def __call__(self, line: bytes, number: int) -> Outgoing:
        if self.key_separator is None:
            return Outgoing(self._read(line, self.value_encoding, number))
        key, found, value = line.partition(self.key_separator)
        if not found:
            raise CliError(
                f"Message {number} has no key separator '{self.key_separator.decode()}'.",
                "Give the separator that the input uses with --key-separator, or none.",
            )
        return Outgoing(
            self._read(value, self.value_encoding, number), self._read(key, self.key_encoding, number)
        )

    def _read(self, data: bytes, encoding: str, number: int) -> bytes | None:
        if self.null is not None and data == self.null:
            return None
        return decode(data, encoding, f"message {number}")


def decode(data: bytes, encoding: str, what: str) -> bytes:
    if encoding == "text":
        return data
    try:
        if encoding == "hex":
            return binascii.unhexlify(b"".join(data.split()))
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise CliError(f"What stands in {what} is not {encoding}: {error}.") from error


JSON_FIELDS = {
    "topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers",
}  # fmt: skip


def read_json(line: bytes, number: int) -> Outgoing:
    """One JSON object as `consume --json` prints it; `topic` and `offset` are read over."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise CliError(
            f"Message {number} is not JSON: {error}.", "Each line must be one JSON object."
        ) from error
    if not isinstance(document, dict):
        raise CliError(f"Message {number} is not a JSON object.", 'Write {"key": "k", "value": "v"}.')
    for name in document:
        if name not in JSON_FIELDS:
            hint = did_you_mean(name, JSON_FIELDS) or f"The fields are: {', '.join(sorted(JSON_FIELDS))}."
            raise CliError(f"Message {number} has a field '{name}' that means nothing.", hint)
    if "value" not in document and "value_base64" not in document:
        raise CliError(f"Message {number} has no value.", 'Write "value": null for a message without one.')
    return Outgoing(
        value=take_bytes(document, "value", number),
        key=take_bytes(document, "key", number),
        headers=take_headers(document.get("headers") or [], number) or None,
        partition=take_integer(document, "partition", number),
        timestamp_ms=take_integer(document, "timestamp", number),
    )


def take_bytes(document: dict[str, Any], name: str, number: int) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return decode(str(encoded).encode(), "base64", f"{name}_base64 of message {number}")
    found = document.get(name)
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    return to_json(found).encode()


def take_headers(headers: Any, number: int) -> Headers:
    """An object, or a list of objects with `key` and `value`, as a header may appear more than once."""
    if isinstance(headers, dict):
        headers = [{"key": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list) or not all(
        isinstance(header, dict) and "key" in header for header in headers
    ):
        raise CliError(
            f"The headers of message {number} are not understood.", 'Write "headers": {"name": "value"}.'
        )
    return [(str(header["key"]), take_bytes(header, "value", number)) for header in headers]


def take_integer(document: dict[str, Any], name: str, number: int) -> int | None:
    found = document.get(name)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
        raise CliError(f"The {name} of message {number} is not a whole number.")
    # -1 is how a missing timestamp is shown.
    return None if found is None or found < 0 else found
