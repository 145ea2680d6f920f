"""A stream's rows at the prompt, over a query that is played here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.spark.sql.jobs import Cancel
from moldau.spark.sql.rows import stream_rows


class PlayedQuery:
    """One batch with these rows; then it ends by itself, or is stopped while it plans the next one."""

    def __init__(self, rows: list[tuple[str]], fails: bool) -> None:
        self._rows, self._fails = rows, fails
        self._error: Exception | None = None

    @property
    def writeStream(self) -> Any:
        return self

    def outputMode(self, mode: str) -> PlayedQuery:
        return self

    def option(self, name: str, value: str) -> PlayedQuery:
        return self

    def foreachBatch(self, take: Any) -> PlayedQuery:
        self._take = take
        return self

    def start(self) -> PlayedQuery:
        return self

    def awaitTermination(self, seconds: float) -> bool:
        self._take(SimpleNamespace(collect=lambda: self._rows), 0)
        if self._fails:
            self._error = RuntimeError("the source is gone")
        return self._fails

    def stop(self) -> None:
        self._error = self._error or RuntimeError("interrupted")

    def exception(self) -> Exception | None:
        return self._error


def shown(rows: list[tuple[str]], most: int | None, fails: bool = False) -> list[Any]:
    found: list[Any] = []
    frame: Any = PlayedQuery(rows, fails)
    stream_rows(frame, "append", "checkpoint", most, found.extend, Cancel())
    return found


def test_a_stream_that_has_given_enough_is_stopped_and_that_is_no_failure() -> None:
    assert shown([("a",), ("b",), ("c",)], 2) == [("a",), ("b",)]


def test_a_stream_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="the source is gone"):
        shown([("a",)], 2, fails=True)
