"""What may come next in a statement: topics and tables where one is read, columns of those that it reads, words.

Pure: who completes says where names come from. Text before and after the word is looked at, so that columns are
known in `SELECT | FROM orders`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from moldau.spark.sql import texts
from moldau.spark.sql.texts import Token

BEFORE_TABLES = frozenset({"FROM", "JOIN", "STREAM", "DESCRIBE", "DESC", "TABLE"})
_WORDS = """
SELECT FROM STREAM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT RIGHT INNER ON AS AND OR NOT IN LIKE BETWEEN IS NULL
CASE WHEN THEN ELSE END DISTINCT UNION ALL WITH WATERMARK DELAY OF INTERVAL SECONDS MINUTES CREATE STREAMING TABLE
TEMPORARY VIEW USING TBLPROPERTIES OPTIONS SHOW TOPICS STREAMS DESCRIBE EXPLAIN STOP DROP SAVE PIPELINE SET HELP QUIT
count sum avg min max window window_time from_json to_json get_json_object cast current_timestamp date_trunc
"""
WORDS = tuple(_WORDS.split())
MATCHES_MAX = 2000


class Names(Protocol):
    def tables(self) -> Iterable[str]: ...

    def columns(self, table: str) -> Iterable[str]: ...

    def streams(self) -> Iterable[str]: ...


def complete(before: str, word: str, after: str, names: Names) -> list[str]:
    """The words that may stand for `word`, as SQL wants them."""
    found = [token for token in texts.tokens(before) if token.kind not in ("comment", "end")]
    if found and found[-1].kind == "open":
        return []
    last = found[-1].text.upper() if found and found[-1].kind == "word" else ""
    if last == "STOP":
        return fitting(names.streams(), word, texts.name)
    if last in BEFORE_TABLES or is_in_from_list(found):
        more = ["STREAM"] if last in ("FROM", "JOIN") else []
        return fitting(names.tables(), word, texts.name) + words(more, word)
    tables = tables_in([*found, *tokens_of(after)])
    alias, dot, start = word.rpartition(".")
    if dot and (table := tables.get(alias.strip("`").casefold())):
        return fitting(names.columns(table), start, lambda name: f"{alias}.{texts.name(name)}")
    columns = [column for table in dict.fromkeys(tables.values()) for column in names.columns(table)]
    return fitting(dict.fromkeys(columns), word, texts.name) + words(WORDS, word)


def tokens_of(text: str) -> list[Token]:
    return [token for token in texts.tokens(text) if token.kind not in ("comment", "end")]


def fitting(names: Iterable[str], start: str, shown: Callable[[str], str]) -> list[str]:
    """Those that begin so, whatever the case; a name that begins with _ only where the start does."""
    wanted = start.strip("`").casefold()
    found = [
        name for name in names if name.casefold().startswith(wanted) and (wanted or not name.startswith("__"))
    ]
    return [shown(name) for name in found[:MATCHES_MAX]]


def words(known: Iterable[str], start: str) -> list[str]:
    """In the case in which the word was begun."""
    if not start or not start[0].isalpha():
        return []
    found = [word for word in known if word.casefold().startswith(start.casefold())]
    return [word.lower() if start == start.lower() else word for word in found]


def is_in_from_list(found: list[Token]) -> bool:
    """After the comma of `FROM a, `."""
    if not found or found[-1].text != ",":
        return False
    for token in reversed(found):
        if token.kind == "word" and token.text.upper() in ("SELECT", "BY", "WHERE", "ON"):
            return False
        if token.kind == "word" and token.text.upper() == "FROM":
            return True
    return False


def tables_in(found: list[Token]) -> dict[str, str]:
    """The tables that are read, by their names and by the names that they are given, in lower case."""
    tables: dict[str, str] = {}
    index = 0
    while index < len(found):
        token = found[index]
        index += 1
        if token.kind != "word" or token.text.upper() not in ("FROM", "JOIN", "STREAM"):
            continue
        while index < len(found) and (found[index].text == "(" or found[index].text.upper() == "STREAM"):
            index += 1
        name, index = dotted(found, index)
        if name:
            tables[name.casefold()] = name
            if alias := alias_at(found, index):
                tables[alias.casefold()] = name
    return tables


def dotted(found: list[Token], index: int) -> tuple[str, int]:
    parts: list[str] = []
    while index < len(found) and found[index].kind in ("word", "quoted"):
        parts.append(found[index].text)
        index += 1
        if index >= len(found) or found[index].text != ".":
            break
        index += 1
    return ".".join(parts), index


def alias_at(found: list[Token], index: int) -> str | None:
    while index < len(found) and (found[index].text == ")" or found[index].text.upper() == "AS"):
        index += 1
    if index < len(found) and found[index].kind in ("word", "quoted"):
        text = found[index].text
        return None if text.upper() in WORDS else text
    return None
