"""Regular expressions that clients send: those of RE2, as in Kafka, as far as Python's engine is safe with them.

RE2 takes time in proportion to the text, whatever the expression; Python's engine tries one way after the other and
may take for ever. So an expression in which one repetition contains another is refused, and so is what RE2 does not
know: looking around, and referring back.
"""

from __future__ import annotations

import re
from re import _parser  # type: ignore[attr-defined]
from typing import Any

LENGTH_MAX = 1000
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
UNKNOWN_TO_RE2 = ("ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS", "ATOMIC_GROUP")
REPEATS_MAX = 8


class BadPattern(ValueError):
    pass


def compile_pattern(text: str | None) -> re.Pattern[str] | None:
    """None where there is no pattern: everything fits."""
    if not text:
        return None
    if len(text) > LENGTH_MAX:
        raise BadPattern("the expression is too long")
    try:
        if _count_repeats(_parser.parse(text), within=False) > REPEATS_MAX:
            raise BadPattern("the expression has too many repetitions")
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPattern(str(error)) from None


def _count_repeats(parsed: Any, *, within: bool) -> int:
    count = 0
    for operation, argument in parsed:
        name = str(operation)
        if name in UNKNOWN_TO_RE2:
            raise BadPattern("the expression is not one of RE2's")
        repeats = name in REPEATS and argument[1] > 1
        if repeats and within:
            raise BadPattern("a repetition contains another")
        count += repeats
        for part in _parts(argument):
            count += _count_repeats(part, within=within or repeats)
    return count


def _parts(argument: Any) -> list[Any]:
    """The expressions inside of one."""
    if isinstance(argument, _parser.SubPattern):
        return [argument]
    if isinstance(argument, (tuple, list)):
        return [part for item in argument for part in _parts(item)]
    return []
