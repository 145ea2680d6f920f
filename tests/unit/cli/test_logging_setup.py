"""Structured logs."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from moldau.cli.logging_setup import formatter_for, set_up_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(**extra: object) -> logging.LogRecord:
    logger = logging.getLogger("moldau.test")
    return logger.makeRecord(
        "moldau.test", logging.INFO, "file.py", 1, "topic %s created", ("orders",), None, extra=extra
    )


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.getLogger("moldau").level)
    yield
    root.handlers[:], level, moldau_level = before
    root.setLevel(level)
    logging.getLogger("moldau").setLevel(moldau_level)


def test_a_pipe_gets_one_json_object_per_record_with_its_fields() -> None:
    document = json.loads(formatter_for("auto", io.StringIO()).format(record(partitions=3, text="a b")))
    assert document.pop("time")
    assert document == {
        "level": "info",
        "logger": "moldau.test",
        "message": "topic orders created",
        "partitions": 3,
        "text": "a b",
    }


def test_a_terminal_gets_a_readable_line_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    line = formatter_for("auto", Terminal()).format(record(partitions=3, text="a b"))
    assert "\x1b[" in line
    assert "topic orders created" in line and 'partitions=3 text="a b"' in line
    monkeypatch.setenv("NO_COLOR", "1")
    plain = formatter_for("auto", Terminal()).format(record())
    assert "\x1b" not in plain and plain.endswith("INFO    topic orders created")


def test_logfmt_quotes_what_has_spaces_or_quotes() -> None:
    line = formatter_for("logfmt", io.StringIO()).format(record(a="x", b='say "hi"', c="", d="k=v"))
    assert line.endswith(
        'level=info logger=moldau.test message="topic orders created" a=x b="say \\"hi\\"" c="" d="k=v"'
    )


@pytest.mark.parametrize("log_format", ["text", "json", "logfmt"])
def test_an_exception_is_told_with_its_traceback(log_format: str) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        failed = record()
        failed.exc_info = sys.exc_info()
    line = formatter_for(log_format, io.StringIO()).format(failed)
    assert "ValueError: broken" in line and "Traceback" in line


def test_the_level_holds_for_moldau_and_libraries_are_heard_from_warnings_upwards(
    logging_restored: None,
) -> None:
    out = io.StringIO()
    set_up_logging("debug", "logfmt", out)
    logging.getLogger("moldau.broker").debug("ours")
    logging.getLogger("somebody").info("theirs")
    logging.getLogger("somebody").warning("important")
    assert [line.split("message=")[1] for line in out.getvalue().splitlines()] == ["ours", "important"]
