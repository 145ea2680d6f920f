"""Clients' regular expressions: RE2's, matched in time proportional to the text, within named bounds.

What clients send is run in the broker, so the engine is RE2 itself (google-re2): no expression makes it go back, and
its memory is bounded. Compiling takes the interpreter's lock, so what makes that slow is counted and refused before;
matching lets the lock go. Whole texts are matched, as Kafka matches names of topics.

Kafka uses RE2/J, whose words the refusals have. Known differences: RE2 takes a brace that is a letter before a
repetition (`{?`), but no letter beyond ASCII behind a backslash; and what is too large here need not be so there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from moldau.base.limits import (
    EXPRESSION_LETTERS_MAX,
    EXPRESSION_MEMORY_BYTES_MAX,
    EXPRESSION_NAMED_GROUPS_MAX,
    EXPRESSION_REPETITIONS_MAX,
    EXPRESSION_UNICODE_CLASSES_MAX,
    EXPRESSIONS_KEPT_MAX,
)

TOO_LARGE = "expression too large"
COUNTED = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
ESCAPED = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)
WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": TOO_LARGE,
}
"""What RE2 says, and what RE2/J says instead; the rest is the same."""


class BadExpression(ValueError):
    """Not one of RE2's, in RE2/J's words; or too large."""


class Expression:
    """`matches(text)` tells whether all of the text is one of those that the expression describes."""

    __slots__ = ("_engine", "size")

    def __init__(self, source: str) -> None:
        _check_size(source)
        if "\\C" in source and any(found[1] == "C" for found in ESCAPED.finditer(source)):
            raise BadExpression("invalid escape sequence")  # a byte, to RE2 alone
        engine = self._engine = _compile(source)
        named = engine.groups  # the others capture nothing
        if named > EXPRESSION_NAMED_GROUPS_MAX:
            raise BadExpression(TOO_LARGE)
        if named > len(engine.groupindex):
            raise BadExpression("duplicate capture group name")  # fine to RE2, not to RE2/J
        self.size: int = engine.programsize * (1 + named)
        """No letter of a text costs more steps than that."""

    def matches(self, text: str) -> bool:
        return self._engine.fullmatch(text.encode()) is not None

    def matching(self, texts: Iterable[str]) -> list[str]:
        """Those that it describes. Takes long for many: then call it in a thread."""
        return [text for text in texts if self.matches(text)]


@lru_cache(maxsize=EXPRESSIONS_KEPT_MAX)
def expression(source: str) -> Expression:
    """The same for the same source, for as long as it is kept. BadExpression where it is none."""
    return Expression(source)


def _check_size(source: str) -> None:
    classes = source.count("\\p") + source.count("\\P")
    repetitions = source.count("*") + source.count("+") + source.count("?") - source.count("(?")
    if "{" in source:
        repetitions += sum(
            max(int(least), int(most or 0))
            for least, most in COUNTED.findall(source[:EXPRESSION_LETTERS_MAX])
            if max(int(least), int(most or 0)) <= EXPRESSION_REPETITIONS_MAX  # a larger one is refused by RE2
        )
    if (
        len(source) > EXPRESSION_LETTERS_MAX
        or classes > EXPRESSION_UNICODE_CLASSES_MAX
        or repetitions > EXPRESSION_REPETITIONS_MAX
    ):
        raise BadExpression(TOO_LARGE)


def _compile(source: str) -> Any:
    import re2  # 12 ms and 3 MB, and many brokers never need it

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = EXPRESSION_MEMORY_BYTES_MAX
    try:
        return re2.compile(source, options)
    except re2.error as error:
        said = error.args[0]
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        reason = text.partition(": ")[0]
        raise BadExpression(WORDS.get(reason, reason)) from None
    finally:
        re2.purge()  # it keeps 128 of them otherwise
