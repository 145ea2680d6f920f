"""Messages as text, out and in."""

from __future__ import annotations

import json

import pytest

from moldau.cli.errors import CliError, Exit
from moldau.cli.message_format import (
    LineReader,
    Outgoing,
    Rendering,
    compile_template,
    encoder,
    json_line,
    read_json,
    readable_time,
    terminal_safe,
    unescape,
)


class Message:
    """What a message of confluent-kafka offers."""

    def __init__(self, value=b"v", key=b"k", headers=None, timestamp=1_700_000_000_000):
        self._value, self._key, self._headers, self._timestamp = value, key, headers, timestamp

    def topic(self):
        return "orders"

    def partition(self):
        return 2

    def offset(self):
        return 41

    def timestamp(self):
        return (1, self._timestamp)

    def key(self):
        return self._key

    def value(self):
        return self._value

    def headers(self):
        return self._headers


def rendering(encoding: str = "text", null: bytes = b"", terminal: bool = False) -> Rendering:
    write = encoder(encoding, null, terminal=terminal)
    return Rendering(key=write, value=write)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{value}", b"v\n"),
        ("{topic}/{partition}@{offset}", b"orders/2@41\n"),
        ("{timestamp} {size}", b"1700000000000 1\n"),
        ("{key}\\t{value}\\x21", b"k\tv!\n"),
        ("{{{key}}}", b"{k}\n"),
        ("{headers}", b"a=1,b=\n"),
        ("{header.a}-{header.none}", b"1-\n"),
    ],
)
def test_a_template_fills_in_its_placeholders(template: str, expected: bytes) -> None:
    write = compile_template(template, rendering())
    assert write(Message(headers=[("a", b"1"), ("b", None)])) == expected


@pytest.mark.parametrize("template", ["{vaule}", "{", "a}b", "{header}"])
def test_an_unknown_placeholder_is_wrong_usage_and_names_the_known_ones(template: str) -> None:
    with pytest.raises(CliError) as error:
        compile_template(template, rendering())
    assert error.value.code is Exit.USAGE
    assert "{offset}" in error.value.hint


def test_bytes_pass_a_pipe_unchanged_and_appear_escaped_on_a_terminal() -> None:
    data = b"\xff\x00\x1b[2J\xc3\xa9\n"
    assert compile_template("{value}", rendering())(Message(data)) == data + b"\n"
    assert terminal_safe(data) == "\\xff\\x00\\x1b[2Jé\n".encode()


def test_null_is_written_as_the_marker_and_not_as_empty() -> None:
    write = compile_template("{key}|{value}", rendering(null=b"NULL"))
    assert write(Message(value=None, key=b"")) == b"|NULL\n"


@pytest.mark.parametrize(("encoding", "expected"), [("hex", b"ff00\n"), ("base64", b"/wA=\n")])
def test_values_can_be_written_encoded(encoding: str, expected: bytes) -> None:
    assert compile_template("{value}", rendering(encoding))(Message(b"\xff\x00")) == expected


def test_a_message_without_a_timestamp_has_no_time() -> None:
    assert readable_time(-1) == "-"
    assert readable_time(1_700_000_000_123).startswith("2023-11-1")
    assert ".123" in readable_time(1_700_000_000_123)


@pytest.mark.parametrize(
    "message",
    [
        Message(),
        Message(value=None, key=None),
        Message(value=b"", key=b""),
        Message(value=b"\xff\xfe", key=b"\x80"),
        Message(headers=[("a", b"1"), ("a", b"2"), ("b", None), ("c", b"\xff")]),
        Message(value="grüße\n".encode(), timestamp=-1),
    ],
)
def test_json_out_and_json_in_is_a_true_copy(message: Message) -> None:
    line = json_line(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    copy = read_json(line, 1)
    assert copy.value == message.value()
    assert copy.key == message.key()
    assert (copy.headers or []) == (message.headers() or [])
    assert copy.partition == 2
    assert copy.timestamp_ms == (None if message.timestamp()[1] < 0 else message.timestamp()[1])


def test_values_that_are_json_become_part_of_the_object_when_asked() -> None:
    assert json.loads(json_line(Message(b'{"a": 1}'), parse_values=True))["value"] == {"a": 1}
    assert json.loads(json_line(Message(b"{no"), parse_values=True))["value"] == "{no"
    assert json.loads(json_line(Message(b'{"a": 1}')))["value"] == '{"a": 1}'


def test_json_input_takes_objects_as_values_and_as_headers() -> None:
    message = read_json(b'{"key": 17, "value": {"total": [1, "x"]}, "headers": {"a": "b", "n": null}}', 1)
    assert message == Outgoing(b'{"total":[1,"x"]}', b"17", [("a", b"b"), ("n", None)])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "Message 3 is not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"vaule": 1}', "'vaule'"),
        (b'{"key": "k"}', "no value"),
        (b'{"value": "v", "partition": "0"}', "partition of message 3"),
        (b'{"value": "v", "timestamp": true}', "timestamp of message 3"),
        (b'{"value": "v", "headers": [1]}', "headers of message 3"),
        (b'{"value_base64": "!"}', "value_base64 of message 3"),
    ],
)
def test_bad_json_input_says_which_message_and_why(line: bytes, said: str) -> None:
    with pytest.raises(CliError, match=said):
        read_json(line, 3)


def test_a_line_is_split_at_the_first_separator_only() -> None:
    read = LineReader(key_separator=b":")
    assert read(b"k:v:w", 1) == Outgoing(b"v:w", b"k")
    assert read(b":v", 1) == Outgoing(b"v", b"")
    with pytest.raises(CliError, match="Message 2 has no key separator"):
        read(b"no separator", 2)


def test_the_null_marker_makes_keys_and_values_null() -> None:
    read = LineReader(key_separator=b":", null=b"NULL")
    assert read(b"NULL:NULL", 1) == Outgoing(None, None)
    assert LineReader()(b"", 1) == Outgoing(b"")


def test_input_can_be_encoded() -> None:
    assert LineReader(value_encoding="hex")(b"ff 00", 1) == Outgoing(b"\xff\x00")
    assert LineReader(value_encoding="base64")(b"/wA=", 1) == Outgoing(b"\xff\x00")
    with pytest.raises(CliError, match="message 5 is not hex"):
        LineReader(value_encoding="hex")(b"xyz", 5)


def test_escapes_are_those_that_people_write_in_a_shell() -> None:
    assert unescape(r"a\tb\n\x00\\n") == "a\tb\n\0\\n"
    assert unescape(r"\q") == r"\q"
