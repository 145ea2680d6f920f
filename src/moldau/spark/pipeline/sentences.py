"""Spark's errors as one sentence: without the error class, the SQLSTATE, the plan and the Java stack that come with
it.
"""

from __future__ import annotations

import re

SENTENCE_MAX = 400

_CLASS = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_CALL = re.compile(r"^An error occurred while calling [\w.:$]+\n: ")
_TAIL = re.compile(r"\s*SQLSTATE: .*", re.DOTALL)
_POSITION = re.compile(r"line (\d+),? pos(?:ition)? \d+")
_CAUSE = re.compile(r"(?:Caused by: )?(?:[a-z_]+\.)+[\w$]*(?:Exception|Error): ")


def sentence(error: BaseException) -> str:
    """What went wrong, as people say it."""
    text = str(error).strip()
    return shortened(text) if is_sparks(error) else f"{type(error).__name__}: {shortened(text)}"


def is_sparks(error: BaseException) -> bool:
    """An error with Spark's words, or a mistake with ours: its type says nothing to a person."""
    return type(error).__module__.startswith(("pyspark.errors", "py4j", "moldau."))


def shortened(text: str) -> str:
    """The first line of one of Spark's messages; what follows is the plan, a stack, or advice for every case."""
    python = python_error(text)
    if python is not None:
        return bounded(python)
    text = _CAUSE.sub("", _CALL.sub("", text).strip())
    text = _TAIL.sub("", _CLASS.sub("", text))
    lines = text.strip().splitlines()
    return bounded(" ".join(lines[0].split()) if lines else "no reason was given.")


def python_error(text: str) -> str | None:
    """The last line of a Python worker's traceback, which is what the author of a source or a function meant to say."""
    if "Traceback (most recent call last)" not in text:
        return None
    after = text.rpartition("Traceback (most recent call last):")[2].splitlines()
    for line in after[1:]:
        if line and not line[0].isspace() and not line.startswith("At:"):
            return _CLASS.sub("", re.sub(r"^(?:\w+\.)*(\w+: )", r"\1", line)).partition(" SQLSTATE")[0]
    return None


def bounded(text: str) -> str:
    text = text.rstrip(" ;:")
    text = text if len(text) <= SENTENCE_MAX else text[: SENTENCE_MAX - 3] + "..."
    return text if text.endswith((".", "?", "!")) else text + "."


def line_in(error: BaseException) -> int | None:
    """The line of the SQL text that the error speaks of."""
    found = _POSITION.search(str(error))
    return int(found[1]) if found else None
