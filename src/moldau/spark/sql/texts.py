"""SQL as text: where a statement ends, which names it mentions, what of it is a name.

Quotes, comments and back-quotes are seen as Spark sees them. Nothing here knows the grammar: that is Spark's parser's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |`(?P<quoted>(?:[^`]|``)*)`
    |(?P<open>['"`]|/\*)
    |(?P<word>[^\W\d]\w*)
    |(?P<end>;)
    |(?P<other>\S)""",
    re.DOTALL | re.VERBOSE,
)
_BARE = re.compile(r"[^\W\d]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Text:
    """A statement, and blanks for all that stands before it where it was written: places in it are places there."""

    blanks: str
    statement: str
    changes: tuple[tuple[int, int, int], ...] = ()
    """Of names that were put into quotes: line and column as they were written, and how much longer they are."""

    @property
    def whole(self) -> str:
        return self.blanks + self.statement

    def as_written(self, place: tuple[int, int]) -> tuple[int, int]:
        """A place in this text as a place in what was written."""
        line, column = place
        longer = 0
        for at_line, at_column, by in sorted(self.changes):
            if at_line == line and at_column + longer < column:
                longer += by
        return line, column - longer


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """comment, string, quoted (a name in back-quotes), open (a quote that does not end), word, end or other."""
    text: str
    at: int


def tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        shown = match[kind].replace("``", "`") if kind == "quoted" else match[0]
        yield Token(kind, shown, match.start())
        if kind == "open":
            return


def split(text: str) -> Iterator[Text]:
    """The statements between semicolons; what is blank is left out."""
    first = 0
    ends = [token.at for token in tokens(text) if token.kind == "end"]
    for end in [*ends, len(text)]:
        part = text[first:end]
        kept = [token.at for token in tokens(part) if token.kind != "comment"]
        if kept:
            at = first + kept[0]
            yield Text(re.sub(r"[^\n]", " ", text[:at]), text[at:end].rstrip())
        first = end + 1


def is_complete(text: str) -> bool:
    """Whether it ends with a semicolon that is in no quotes and no comment."""
    last = ""
    for token in tokens(text):
        if token.kind != "comment":
            last = token.kind
    return last == "end"


def is_blank(text: str) -> bool:
    """Nothing but blanks, comments and semicolons."""
    return all(token.kind in ("comment", "end") for token in tokens(text))


def in_one_line(text: str) -> str:
    """A statement for the history: no comments, and blanks for the ends of lines that are in no quotes."""
    parts, at = [], 0
    for token in tokens(text):
        if token.kind == "comment":
            parts.append(text[at : token.at])
            at = token.at + len(token.text)
        elif token.kind in ("string", "quoted") and "\n" in token.text:
            return ""  # a history of lines cannot have it
    return " ".join("".join([*parts, text[at:]]).split("\n")).strip()


def mentioned(text: str) -> set[str]:
    """Every name and word in it, in lower case."""
    return {token.text.casefold() for token in tokens(text) if token.kind in ("word", "quoted")}


def name(text: str) -> str:
    """A name as SQL needs it: in back-quotes where it is not a plain one."""
    return text if _BARE.fullmatch(text) else "`" + text.replace("`", "``") + "`"


def line_and_column(text: str, index: int) -> tuple[int, int]:
    """Of a character, both from 1."""
    before = text[: max(0, min(index, len(text)))]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
