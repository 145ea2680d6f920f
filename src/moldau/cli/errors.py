"""What can go wrong on the command line, and how it is said: one sentence, then what to do about it.

Every failure that a user can meet is a `CliError` with an exit code from the table below; commands raise it,
and `app.run` prints it, as text or, under `--json`, as one JSON document on stderr. Tracebacks are for
MOLDAU_DEBUG=1.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    CANNOT_START = 5
    INTERRUPTED = 130


EXIT_MEANINGS = {
    Exit.OK: "done",
    Exit.FAILED: "the operation failed, or a check found a problem",
    Exit.USAGE: "wrong usage: an option, argument or config key",
    Exit.UNREACHABLE: "the cluster cannot be reached or does not answer",
    Exit.NOT_FOUND: "the topic, partition, broker or file does not exist",
    Exit.CANNOT_START: "the broker cannot start: port, data folder or store",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}


class CliError(Exception):
    """A failure with its sentence, what the user can do about it, and the exit code."""

    def __init__(self, message: str, hint: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def as_json(self) -> str:
        error = {"kind": self.code.name.lower(), "message": self.message, "hint": self.hint or None}
        return json.dumps({"error": error}, ensure_ascii=False)


def usage(message: str, hint: str = "") -> CliError:
    return CliError(message, hint, Exit.USAGE)


def not_found(message: str, hint: str = "") -> CliError:
    return CliError(message, hint, Exit.NOT_FOUND)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean retention.ms?`, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    if not near:
        return ""
    *others, last = near
    return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def file_error(error: OSError, what: str) -> CliError:
    """An operating error on a file that the user named."""
    path = error.filename if isinstance(error.filename, str) else what
    if isinstance(error, FileNotFoundError):
        return not_found(f"There is no file {path}.", "Check the path; it is relative to the current folder.")
    if isinstance(error, IsADirectoryError):
        return usage(f"{path} is a folder, not a file.")
    if isinstance(error, PermissionError):
        return CliError(
            f"{path} may not be read by this user.", "Change its permissions, or name another file."
        )
    return CliError(f"{path}: {error.strerror or error}.")


def unexpected(error: Exception) -> CliError:
    return CliError(
        f"Something unexpected happened: {type(error).__name__}: {error}",
        "Run it again with MOLDAU_DEBUG=1 to see where, and please report it.",
    )


def debugging() -> bool:
    return os.environ.get("MOLDAU_DEBUG", "") not in ("", "0")
