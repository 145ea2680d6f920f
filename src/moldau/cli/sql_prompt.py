"""The prompt of `moldau sql`: lines until a semicolon, a history, completion.

Python's own readline does all of it (GNU's, or editline on macOS): prompt_toolkit would be the library for menus and
colours while typing, at the price of two more packages. Without readline (Windows) the prompt has no history and no
completion, and is the same otherwise.

The history is a file in the user's data folder, a statement in each line, the last HISTORY_MAX of them; only its
owner can read it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from moldau.spark.sql.completion import Names, complete
from moldau.spark.sql.texts import in_one_line, is_blank, is_complete

readline: Any
try:
    import readline
except ImportError:  # Windows
    readline = None

PROMPT = "moldau> "
MORE = "     -> "
HISTORY_MAX = 10_000
DELIMITERS = " \t\n,()=<>+*/;|"
WITHOUT_SEMICOLON = frozenset({"help", "quit", "exit"})


def history_file() -> Path:
    """In the folder where programs of this user keep their data."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "moldau" / "sql_history"


class History:
    """Best effort: a folder that cannot be written costs the history, not the prompt."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        if len(lines) > HISTORY_MAX:
            lines = lines[-HISTORY_MAX:]
            with suppress(OSError):
                draft = self._path.with_suffix(".new")
                draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                draft.chmod(0o600)
                draft.replace(self._path)
        return lines

    def add(self, line: str) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
                file.write(f"{line}\n")


class Prompt:
    """Reads statements; Ctrl-C gives up the one that is being typed, Ctrl-D ends."""

    def __init__(self, names: Names, history: History, before: Callable[[], None]) -> None:
        """`before` is called before each prompt: to tell what has happened meanwhile."""
        self._names = names
        self._history = history
        self._before = before
        self._earlier = ""
        self._matches: list[str] = []
        self._last = ""

    @contextmanager
    def ready(self) -> Iterator[None]:
        if readline is None:
            yield
            return
        readline.set_auto_history(False)
        readline.set_completer_delims(DELIMITERS)
        readline.set_completer(self._complete)
        is_editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")
        if not is_editline:
            readline.parse_and_bind("set completion-ignore-case on")
            readline.parse_and_bind("set bell-style none")
        for line in self._history.load():
            readline.add_history(line)
        try:
            yield
        finally:
            readline.set_completer(None)

    def statements(self) -> Iterator[str]:
        """Each as it was typed, with its semicolon."""
        while True:
            self._before()
            try:
                text = self._read()
            except KeyboardInterrupt:
                print()
                continue
            except EOFError:
                print()
                return
            if not is_blank(text):
                self._remember(text)
                yield text

    def _read(self) -> str:
        self._earlier = ""
        while True:
            line = input(MORE if self._earlier else PROMPT)
            text = self._earlier + line
            if is_complete(text) or (not self._earlier and self._is_word(line)):
                return text
            if is_blank(text):
                self._earlier = ""
            else:
                self._earlier = text + "\n"

    def _is_word(self, line: str) -> bool:
        return line.strip().lower() in WITHOUT_SEMICOLON

    def _remember(self, text: str) -> None:
        line = in_one_line(text)
        if line and line != self._last:
            self._last = line
            if readline is not None:
                readline.add_history(line)
            self._history.add(line)

    def _complete(self, word: str, number: int) -> str | None:
        """Called by readline with 0, 1, .. until there is no more; an error in it would be lost."""
        if number == 0:
            line = readline.get_line_buffer()
            before, after = line[: readline.get_begidx()], line[readline.get_endidx() :]
            try:
                self._matches = complete(self._earlier + before, word, after, self._names)
            except Exception:
                self._matches = []
        return self._matches[number] if number < len(self._matches) else None
