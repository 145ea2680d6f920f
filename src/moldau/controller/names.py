"""Which names a topic may have: Kafka's rules, with its texts."""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import TOPIC_NAME_LENGTH_MAX

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def invalid_topic_name(name: str) -> str | None:
    """Why a name cannot be a topic's; None where it can."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    elif not _LETTERS.issuperset(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def check_topic_name(name: str) -> None:
    if (reason := invalid_topic_name(name)) is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, reason)
