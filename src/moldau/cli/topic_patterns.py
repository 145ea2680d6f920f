"""Topics by patterns with *, ? and [...], as `topic list` takes them: no topic has these in its name.

The cluster's own topics (their names begin with __) are meant only by patterns that begin so, too.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from moldau.cli.client import Connection
from moldau.cli.errors import not_found

SPECIAL = frozenset("*?[")


def is_pattern(text: str) -> bool:
    return not SPECIAL.isdisjoint(text)


def matches(pattern: str, name: str) -> bool:
    is_meant = pattern.startswith("__") or not name.startswith("__")
    return is_meant and fnmatch.fnmatchcase(name, pattern)


def expanded(connection: Connection, wanted: Iterable[str], *, tolerate_none: bool = False) -> list[str]:
    """Names as they are, and in the place of a pattern the names of the topics that are there. Each once."""
    names: dict[str, None] = {}
    known: list[str] | None = None
    for text in wanted:
        if not is_pattern(text):
            names[text] = None
            continue
        if known is None:
            known = sorted(connection.metadata().topics)
        found = [name for name in known if matches(text, name)]
        if not found and not tolerate_none:
            raise not_found(f"No topic matches '{text}'.", "`moldau topic list` shows what is there.")
        names |= dict.fromkeys(found)
    return list(names)
