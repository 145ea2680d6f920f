"""Structured logs of a running broker, over the standard library's logging.

Fields are passed as `extra`: `log.info("topic created", extra={"topic": name})`. On a terminal a record is one
readable line, in colour; elsewhere one JSON object per line, or logfmt. Logs go to stderr; stdout is for results.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TextIO

import click

from moldau.cli.help import colour_setting

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "text", "json", "logfmt")
# What every record has; the rest of its attributes are the fields that the caller gave.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVEL_COLOURS = {"DEBUG": "blue", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def set_up_logging(level: str, log_format: str, stream: TextIO | None = None, *, process: str = "") -> None:
    """Send the process's logs to `stream` (stderr). Libraries are heard from their warnings upwards.

    Where several processes write to one stream, `process` tells which of them it was.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter_for(log_format, stream, process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("moldau").setLevel(level.upper())


def formatter_for(log_format: str, stream: TextIO, process: str = "") -> logging.Formatter:
    if log_format == "auto":
        log_format = "text" if stream.isatty() else "json"
    if log_format == "json":
        return JsonFormatter(process)
    if log_format == "logfmt":
        return LogfmtFormatter(process)
    setting = colour_setting()
    return TextFormatter(process, coloured=stream.isatty() if setting is None else setting)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class TextFormatter(logging.Formatter):
    """`12:30:01.250 INFO  listening  listener=PLAINTEXT port=9092`, behind the name of the process if it has one"""

    def __init__(self, process: str = "", *, coloured: bool) -> None:
        super().__init__()
        self._process = process
        self._style_text: Callable[..., str] = click.style if coloured else lambda text, **_style: text

    def format(self, record: logging.LogRecord) -> str:
        style = self._style_text
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        level = style(f"{record.levelname:<7}", fg=_LEVEL_COLOURS.get(record.levelname, "white"))
        fields = " ".join(f"{name}={logfmt_value(value)}" for name, value in fields_of(record).items())
        line = f"{style(moment, dim=True)} {level} {record.getMessage()}"
        if self._process:
            line = f"{style(self._process, fg='cyan')} {line}"
        if fields:
            line += f"  {style(fields, dim=True)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _StructuredFormatter(logging.Formatter):
    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = {"process": process} if process else {}

    def document(self, record: logging.LogRecord) -> dict[str, Any]:
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= self._process | fields_of(record)
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return document


class JsonFormatter(_StructuredFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.document(record), ensure_ascii=False, default=str)


class LogfmtFormatter(_StructuredFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={logfmt_value(value)}" for name, value in self.document(record).items())


def logfmt_value(value: Any) -> str:
    """The value as it is, or quoted where it has spaces, quotes or control characters."""
    text = str(value)
    if text and all(letter.isprintable() and letter not in ' "=\\' for letter in text):
        return text
    return json.dumps(text, ensure_ascii=False)
