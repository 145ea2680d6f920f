"""Durations in decoded requests: kio gives them as timedeltas, the broker counts milliseconds."""

from __future__ import annotations

from datetime import timedelta


def milliseconds(value: timedelta | int) -> int:
    """Exactly; a number is milliseconds already."""
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1000 + value.microseconds // 1000
    return value
