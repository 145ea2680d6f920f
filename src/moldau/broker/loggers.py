"""The levels of this process's loggers, as the BROKER_LOGGER resource shows and sets them.

Kafka's level names are used for Python's; FATAL is CRITICAL, and TRACE is everything below DEBUG. Levels are
not kept: they are back to what they were after a restart, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.config.describe import ConfigEntry, Source
from moldau.controller.configs import Alteration, Operation, check_keys_and_values

ROOT = "root"
_OURS = "moldau"
_LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
_NAMES = {level: name for name, level in _LEVELS.items()}
_UNKNOWN_TYPE = 0


def describe_loggers() -> list[ConfigEntry]:
    return [
        ConfigEntry(name, _level_name(name), False, Source.BROKER_LOGGER, False, (), _UNKNOWN_TYPE, None)
        for name in _known()
    ]


def alter_loggers(changes: Sequence[Alteration], *, validate_only: bool) -> None:
    """KafkaError, and nothing changed, where one of the changes cannot be made."""
    check_keys_and_values(changes)
    known = _known()
    for change in changes:
        _check(change, known)
    if not validate_only:
        for change in changes:
            level = _LEVELS[change.value or ""] if change.operation == Operation.SET else logging.NOTSET
            _logger(change.name).setLevel(level)


def _check(change: Alteration, known: list[str]) -> None:
    if change.operation not in (Operation.SET, Operation.DELETE):
        name = Operation(change.operation).name if change.operation in set(Operation) else change.operation
        raise KafkaError(
            ErrorCode.invalid_request, f"{name} operation is not allowed for the BROKER_LOGGER resource"
        )
    if change.name not in known:
        raise KafkaError(ErrorCode.invalid_config, f"Logger {change.name} does not exist!")
    if change.operation == Operation.DELETE:
        if change.name == ROOT:
            raise KafkaError(
                ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed"
            )
    elif change.value not in _LEVELS:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}",
        )


def _known() -> list[str]:
    """The root logger and this project's; those of libraries are nobody's business here."""
    ours = (name for name in logging.root.manager.loggerDict if name.split(".")[0] == _OURS)
    return [*sorted(ours), ROOT]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(name: str) -> str:
    level = _logger(name).getEffectiveLevel()
    return _NAMES.get(level) or next((_NAMES[known] for known in sorted(_NAMES) if level <= known), "FATAL")
