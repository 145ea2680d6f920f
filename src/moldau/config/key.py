"""What a configuration key is, and how its value is read: Kafka's types, checks and error texts.

A value is text everywhere (files, variables, requests, the store) and is parsed by its key, exactly as Kafka
parses it: whitespace around it is ignored, integers take a sign and decimal digits only, a list is cut at
commas. The texts of `ConfigError` are Kafka's, because clients show them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, IntEnum
from hmac import compare_digest
from typing import Any, NamedTuple, Protocol

# Java's String.trim() removes everything up to the space, and nothing beyond ASCII.
_TRIMMED = "".join(map(chr, range(33)))
_INTEGER_BITS = {"INT": 32, "SHORT": 16, "LONG": 64}
_REPLICAS = re.compile(r"(?:[0-9]++:[0-9]++|)(?:,(?:[0-9]++:[0-9]++|))*+")
_SPACE = re.compile(r"\s")
VALUE_LENGTH_MAX = 256 * 1024
"""All throttled replicas of ten thousand partitions. A topic's settings are one entry of the store, and ZooKeeper takes
1 MB of it."""


class Password:
    """The value of a key that is never shown: what prints it prints `[hidden]`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(Password)

    def __repr__(self) -> str:
        return "[hidden]"  # as Kafka's


class ConfigError(ValueError):
    """A key or value that is refused; the text says why."""


class Type(IntEnum):
    """The types, with their numbers in DescribeConfigs answers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """What carries the key."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client metrics"


class Update(Enum):
    """How a broker key may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Check(Protocol):
    """A condition on the parsed value, beyond its type."""

    @property
    def allowed(self) -> str:
        """What the value may be, for people."""
        ...

    def __call__(self, name: str, value: Any) -> None:
        """Raises ConfigError where the value is not allowed."""
        ...


class Key(NamedTuple):
    """One row of the table; a tuple, because hundreds are made at every start."""

    name: str
    type: Type
    default: str | None
    doc: str
    check: Check | None = None
    scope: Scope = Scope.BROKER
    update: Update = Update.READ_ONLY
    #: For a topic or group key: the broker keys that give its default, the first that is set wins.
    #: For a broker key: the family it belongs to, itself included, in order of precedence.
    synonyms: tuple[str, ...] = ()
    importance: str = "medium"
    #: Whether Moldau behaves differently for it today. Otherwise it is stored, shown, and said to have no
    #: effect.
    acts: bool = True
    #: Accepted and used, but not listed unless it is set (Kafka's own tests need it).
    hidden: bool = False
    #: DescribeConfigs tells it only where it is set, as Kafka's does.
    told_if_set: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Any:
        """The value in Python's types; ConfigError with Kafka's text where it is not one."""
        check_length(self.name, text)
        value = parse_value(self.name, self.type, text)
        if self.check is not None:
            self.check(self.name, value)
        return value


def invalid(name: str, value: object, reason: str) -> ConfigError:
    shown = format_double(value) if isinstance(value, float) else value
    return ConfigError(f"Invalid value {shown} for configuration {name}: {reason}")


def check_length(name: str, text: str) -> None:
    """A limit of Moldau's own, looked at before anything is done with a value."""
    if len(text) > VALUE_LENGTH_MAX:
        raise ConfigError(
            f"The value of {name} has {len(text)} characters, and may have {VALUE_LENGTH_MAX} at most."
        )


def parse_value(name: str, type_: Type, text: str) -> Any:
    trimmed = text.strip(_TRIMMED)
    if type_.name in _INTEGER_BITS:
        return _parse_integer(name, type_, text, trimmed)
    if type_ is Type.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if type_ is Type.DOUBLE:
        return _parse_double(name, text, trimmed)
    if type_ is Type.LIST:
        items = trimmed.split(",") if trimmed else []
        if _SPACE.search(trimmed):
            items = [item.strip() for item in items]
        return list(dict.fromkeys(items))  # Kafka keeps the first of equal entries
    return Password(trimmed) if type_ is Type.PASSWORD else trimmed


def _parse_integer(name: str, type_: Type, text: str, trimmed: str) -> int:
    digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    if digits.isdecimal():
        value = int(trimmed)
        limit = 1 << (_INTEGER_BITS[type_.name] - 1)
        if -limit <= value < limit:
            return value
    raise invalid(name, text, f"Not a number of type {type_.name}")


def _parse_double(name: str, text: str, trimmed: str) -> float:
    body = trimmed.lstrip("+-")
    # Python reads more spellings than Java does: 1_000, inf, nan.
    if body[:1].isdigit() or body[:1] == "." or body in ("NaN", "Infinity"):
        try:
            if "_" not in body:
                return float(trimmed)
        except ValueError:
            pass
    raise invalid(name, text, "Not a number of type DOUBLE")


def format_value(type_: Type, value: Any) -> str | None:
    """A parsed value as Kafka writes it in DescribeConfigs answers."""
    if value is None:
        return None
    if type_ is Type.BOOLEAN:
        return "true" if value else "false"
    if type_ is Type.DOUBLE:
        return format_double(value)
    if type_ is Type.LIST:
        return ",".join(value)
    return str(value)


def format_double(value: float) -> str:
    """As Java's Double.toString: plain between 1e-3 and 1e7, else with an exponent and at least one
    decimal.
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign = "-" if value < 0 else ""
    mantissa, _, shift = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    exponent = int(shift or 0) + len(whole) - 1 - leading_zeros
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{exponent}"


class Range:
    """A number within bounds; `extra` is one more number that is allowed outside of them."""

    def __init__(self, least: int, most: int | None = None, extra: int | None = None) -> None:
        self.least = least
        self.most = most
        self.extra = extra

    @property
    def allowed(self) -> str:
        text = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        return text if self.extra is None else f"{text}, or {self.extra}"

    def __call__(self, name: str, value: Any) -> None:
        if value == self.extra:
            return
        too_low, too_high = value < self.least, self.most is not None and value > self.most
        if self.extra is not None and (too_low or too_high):
            raise invalid(
                name, value, f"Value must be between {self.least} and {self.most} or equal to {self.extra}"
            )
        if too_low:
            raise invalid(name, value, f"Value must be at least {self.least}")
        if too_high:
            raise invalid(name, value, f"Value must be no more than {self.most}")


class OneOf:
    """One of a few words, exactly as they are written."""

    def __init__(self, choices: tuple[str, ...]) -> None:
        self.choices = choices

    @property
    def allowed(self) -> str:
        return ", ".join(self.choices)

    def __call__(self, name: str, value: Any) -> None:
        if value not in self.choices:
            raise invalid(name, value, f"String must be one of: {self.allowed}")


class OneOfAnyCase:
    """One of a few words, in upper or lower case."""

    def __init__(self, choices: tuple[str, ...]) -> None:
        self.choices = choices

    @property
    def allowed(self) -> str:
        return ", ".join(self.choices)

    def __call__(self, name: str, value: Any) -> None:
        if value.upper() not in self.choices:
            raise invalid(name, value, f"String must be one of (case insensitive): {self.allowed}")


class ListOf:
    """A list of a few words; an empty list is allowed unless said otherwise."""

    def __init__(self, choices: tuple[str, ...], *, empty_allowed: bool = True) -> None:
        self.choices = choices
        self.empty_allowed = empty_allowed

    @property
    def allowed(self) -> str:
        return f"a list of: {', '.join(self.choices)}"

    def __call__(self, name: str, value: Any) -> None:
        if not value and not self.empty_allowed:
            raise ConfigError(
                f"Configuration '{name}' must not be empty. Valid values include: [{self.allowed}]"
            )
        if "" in value:
            raise ConfigError(f"Configuration '{name}' values must not be empty.")
        for item in value:
            if item not in self.choices:
                raise invalid(name, item, f"String must be one of: {', '.join(self.choices)}")


class ThrottledReplicas:
    """`*`, or a list of `partition:broker`; as in Kafka, an item may be empty."""

    allowed = "* or a list of partition:broker"

    def __call__(self, name: str, value: Any) -> None:
        text = ",".join(value)
        if text != "*" and not _REPLICAS.fullmatch(text):
            raise invalid(
                name,
                java_list(value),
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )


def java_list(items: Sequence[object]) -> str:
    """A list as Java prints it, for texts that clients show."""
    return f"[{', '.join(map(str, items))}]"
