"""JAAS lines of Kafka's files, as `sasl.jaas.config` has them: Kafka's JaasConfig.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";

The words are those of Java's StreamTokenizer: blanks part them, a value with anything but letters stands in quotes,
`//` and `/* */` are comments. Options are secrets: they are in no error, and in no `repr`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moldau.config.key import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"

FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_QUOTES = "\"'"
_PARTS = ";="
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"
_OCTAL_DIGITS_MAX = 3
_OCTAL_MAX = 0o377


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry: the class that it names, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """The one login module of a line. ConfigError where there is none, or more than one, or it is misspelt."""
    modules = list(_modules(_words(text)))
    if not modules:
        raise ConfigError("Login module not specified in JAAS config")
    if len(modules) > 1:
        raise ConfigError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


@dataclass(frozen=True, slots=True)
class _Word:
    text: str = field(repr=False)
    is_part: bool = False
    """`;` or `=`, outside of quotes."""


_END = _Word("")


def _modules(words: Iterator[_Word]) -> Iterator[LoginModule]:
    while (word := next(words, _END)) is not _END:
        flag = next(words, _END)
        if flag is _END:
            raise ConfigError("Login module control flag not specified in JAAS config")
        if flag.is_part:
            raise ConfigError("Login module control flag is not available in the JAAS config")
        if flag.text.upper() not in FLAGS:  # which may be anything, of a line that is mixed up
            raise ConfigError(f"Invalid login module control flag in JAAS config: not {', '.join(FLAGS)}")
        yield LoginModule("" if word.is_part else word.text, dict(_options(words)))


def _options(words: Iterator[_Word]) -> Iterator[tuple[str, str]]:
    while (name := next(words, _END)) is not _END and not _is(name, ";"):
        if not _is(next(words, _END), "=") or (value := next(words, _END)) is _END or value.is_part:
            raise ConfigError("Value not specified for a key in JAAS config")
        yield name.text, value.text
    if name is _END:
        raise ConfigError("JAAS config entry not terminated by semi-colon")


def _is(word: _Word, part: str) -> bool:
    return word.is_part and word.text == part


def _words(text: str) -> Iterator[_Word]:
    position = 0
    while position < len(text):
        letter = text[position]
        if letter <= " ":
            position += 1
        elif letter == "/":
            position = _after_comment(text, position)
        elif letter in _PARTS:
            yield _Word(letter, is_part=True)
            position += 1
        elif letter in _QUOTES:
            word, position = _quoted(text, position + 1, letter)
            yield _Word(word)
        else:
            start = position
            while position < len(text) and text[position] > " " and text[position] not in "/;=\"'":
                position += 1
            yield _Word(text[start:position])


def _after_comment(text: str, position: int) -> int:
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _quoted(text: str, position: int, quote: str) -> tuple[str, int]:
    """What is in quotes, and where it ends; a quote that nobody closes ends with its line."""
    letters: list[str] = []
    while position < len(text) and text[position] not in "\r\n":
        letter = text[position]
        position += 1
        if letter == quote:
            break
        if letter == "\\" and position < len(text):
            letter, position = _escaped(text, position)
        letters.append(letter)
    return "".join(letters), position


def _escaped(text: str, position: int) -> tuple[str, int]:
    letter = text[position]
    if letter not in _OCTAL:
        return _ESCAPES.get(letter, letter), position + 1
    stop = position
    while stop < min(len(text), position + _OCTAL_DIGITS_MAX) and text[stop] in _OCTAL:
        if int(text[position : stop + 1], 8) > _OCTAL_MAX:
            break
        stop += 1
    return chr(int(text[position:stop], 8)), stop
