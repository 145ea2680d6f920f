"""Where settings come from: a TOML or .properties file, `MOLDAU_...` variables, `--set key=value` options.

Pure functions from text to a flat map of names to texts; reading files and the environment is the caller's.
Whether a name is known and a value good is `BrokerConfig.parse`'s to say, except for variables, whose names
must be known to be told apart from others (`foreign`). An option wins over a variable, and a variable over the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from moldau.config.foreign import is_of_a_service
from moldau.config.inert_keys import inert_keys
from moldau.config.key import ConfigError
from moldau.config.spelling import meant
from moldau.config.table import BROKER_KEYS, OWN, broker_key

PREFIX = "MOLDAU_"
#: Variables of the command line that are not configuration keys.
OTHER_VARIABLES = frozenset(
    {"MOLDAU_BOOTSTRAP", "MOLDAU_DEBUG", "MOLDAU_FALLBACKS", "MOLDAU_KAFKA_CACHE", "MOLDAU_PROFILE"}
)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def merged(
    file: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """One map, the stronger source winning."""
    return {**(file or {}), **(variables or {}), **(options or {})}


def is_toml(name: str) -> bool:
    """By the file's name: `.toml` is TOML, everything else Java's properties format."""
    return name.endswith(".toml")


def parse_file(name: str, text: str) -> dict[str, str]:
    return parse_toml(text) if is_toml(name) else parse_properties(text)


def parse_toml(text: str) -> dict[str, str]:
    """Tables and dotted keys are joined by dots: `[log.retention] hours = 1` is `log.retention.hours`."""
    import tomllib

    try:
        return dict(_flattened("", tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None


def _flattened(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(f"{prefix}{name}.", value)
        else:
            yield prefix + name, _toml_text(prefix + name, value)


def _toml_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_toml_text(name, item) for item in value)
    raise ConfigError(f"{name}: a date or time is not a value of a configuration key")


def parse_properties(text: str) -> dict[str, str]:
    """Java's format: `key=value`, `key: value` or `key value`, comments, continued lines, backslash
    escapes.
    """
    settings = {}
    for line in _logical_lines(text):
        name, value = _split_property(line)
        settings[_unescaped(name)] = _unescaped(value)
    return settings


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split_property(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return line[:position], rest


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    result, position = "", 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\" and position < len(text):
            letter = text[position]
            position += 1
            if letter == "u":
                letter = _unicode_escape(text[position : position + 4])
                position += 4
            else:
                letter = _ESCAPES.get(letter, letter)
        result += letter
    return result


def _unicode_escape(digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except ValueError:
        raise ConfigError(f"\\u{digits} is not \\u with four hexadecimal digits") from None


def parse_options(options: Iterable[str]) -> dict[str, str]:
    """`key=value` each, as after `--set`."""
    settings = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"'{option}' is not key=value, like log.retention.hours=24")
        settings[name.strip()] = value
    return settings


class Variables(NamedTuple):
    settings: dict[str, str]
    unknown: list[str]
    """Variables that name no key, nor nearly one: somebody else's, or a mistake."""


def parse_variables(environment: Mapping[str, str]) -> Variables:
    """`MOLDAU_LOG_RETENTION_HOURS=24` is `log.retention.hours`; `MOLDAU_HTTP_PORT` is `moldau.http.port`.

    ConfigError for a name that is nearly a key's.
    """
    found = Variables({}, [])
    given = {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES and not is_of_a_service(name, value)
    }
    if not given:
        return found
    names = {name.removeprefix(OWN): name for name in (*inert_keys(), *BROKER_KEYS)}
    for variable, value in given.items():
        asked = variable.removeprefix(PREFIX).lower().replace("_", ".")
        if (name := names.get(asked) or _listener_key(asked)) is not None:
            found.settings[name] = value
        elif (near := meant(asked, names)) is not None:
            raise ConfigError(
                f"the variable {variable} names no configuration key: did you mean {variable_of(near)}?"
            )
        else:
            found.unknown.append(variable)
    return found


def _listener_key(asked: str) -> str | None:
    """`MOLDAU_LISTENER_NAME_OUTSIDE_SCRAM_SHA_256_...`: a variable cannot say `-`."""
    name = asked.replace(".scram.sha.", ".scram-sha-")
    return name if broker_key(name) is not None else None


def variable_of(name: str) -> str:
    """The variable that sets a key."""
    return PREFIX + name.removeprefix(OWN).replace(".", "_").upper()
