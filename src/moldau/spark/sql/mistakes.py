"""What is wrong with a statement: one sentence, the place in the SQL, perhaps what to do.

Spark's errors say where in two ways: `line 2 pos 7` counts characters from 0, `line 2, position 8` from 1.
"""

from __future__ import annotations

import re

from moldau.spark.pipeline.sentences import sentence, shortened
from moldau.spark.sql.texts import Text, line_and_column

_PLACE = re.compile(r"line (\d+),? (pos|position) (\d+)")
_STATEMENT_PLACE = re.compile(r"\s*\(line \d+, pos \d+\).*", re.DOTALL)
_CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
WAITED = "Exception thrown in awaitResult"
_SYNTAX = re.compile(r"^Syntax error at or near ")
_HINTS = (
    ("INVALID_IDENTIFIER", "Put names with a dash or a dot into `back-quotes`."),
    ("STREAMING_TABLE_QUERY_INVALID", "Read one of its topics with FROM STREAM."),
)


class Mistake(Exception):
    """`place` is line and column, from 1; None where Spark does not say."""

    def __init__(self, message: str, hint: str = "", place: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place


class NotFound(Mistake):
    """A topic, table or view that does not exist."""


def place_in(error: BaseException) -> tuple[int, int] | None:
    found = _PLACE.search(str(error))
    if found is None:
        return None
    return int(found[1]), int(found[3]) + (1 if found[2] == "pos" else 0)


def explained(error: Exception, text: Text) -> Mistake:
    """Spark's error about a statement."""
    if isinstance(error, Mistake):
        return error
    message = _STATEMENT_PLACE.sub("", reason_of(error))
    message = _SYNTAX.sub("This is no SQL at ", message)
    place = place_in(error)
    hint = next((hint for word, hint in _HINTS if f"[{word}" in str(error)), "")
    return Mistake(
        message if message.endswith((".", "?", "!")) else message + ".",
        hint,
        place and text.as_written(place),
    )


def reason_of(error: Exception) -> str:
    """What it failed by: of rows that come piece by piece Spark says only that it has waited for them."""
    said = sentence(error)
    causes = _CAUSE.findall(str(error))
    return shortened(causes[-1]) if said.startswith(WAITED) and causes else said


def at(text: Text, index: int) -> tuple[int, int]:
    """The place of a character of the whole text, as it was written."""
    return text.as_written(line_and_column(text.whole, index))
