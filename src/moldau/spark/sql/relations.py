"""The names that a parsed statement reads: each with its place, whether as a stream, and the options that follow it.

A statement's own WITH names are not among them. The plans' class and field names are internal to Spark:
tests/spark/test_sql.py tells where a new PySpark has other ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.spark.pipeline.sql import items, option
from moldau.spark.sql.inference import quoted
from moldau.spark.sql.texts import Text, line_and_column

_NAME = r"(?:`(?:[^`]|``)*`|[^\s`.(),;]+)"
_DOTTED = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})+")
TRANSPARENT = frozenset(
    {
        "Aggregate", "Distinct", "EventTimeWatermark", "Filter", "GlobalLimit", "Join", "LocalLimit",
        "NamedStreamingRelation", "Offset",
        "Project", "Sort", "SubqueryAlias", "UnresolvedEventTimeWatermark", "UnresolvedHaving", "UnresolvedRelation",
        "UnresolvedWith", "WithWindowDefinition",
    }
)  # fmt: skip
"""Nodes that need no column but those that they name."""
WITHIN_ALIAS = frozenset({"NamedStreamingRelation", "UnresolvedSubqueryColumnAliases"})
"""Nodes between an alias and the relation that it is of."""


@dataclass(frozen=True, slots=True)
class Relation:
    parts: tuple[str, ...]
    is_stream: bool
    first: int
    """The place of its first and last character in the text."""
    last: int
    is_aliased: bool
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Of WITH (..) behind it."""

    @property
    def name(self) -> str:
        return ".".join(self.parts)


def relations(plan: Any) -> list[Relation]:
    own: set[str] = set()
    found = list(walk(plan, own, False))
    return [one for one in found if len(one.parts) > 1 or one.name.casefold() not in own]


def walk(node: Any, own: set[str], is_aliased: bool) -> Iterator[Relation]:
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedRelation":
        yield relation_of(node, is_aliased)
    if kind == "UnresolvedWith":
        for pair in items(node.cteRelations()):
            own.add(str(pair._1()).casefold())
            yield from walk(pair._2(), own, False)
    for part in (node.children(), node.subqueries()):
        for child in items(part):
            yield from walk(child, own, kind == "SubqueryAlias" or (is_aliased and kind in WITHIN_ALIAS))


def relation_of(node: Any, is_aliased: bool) -> Relation:
    origin, given = node.origin(), node.options()
    return Relation(
        parts=tuple(str(part) for part in items(node.multipartIdentifier())),
        is_stream=bool(node.isStreaming()),
        options={str(key): str(given.get(key)) for key in given.asCaseSensitiveMap().keySet()},
        first=int(option(origin.startIndex()) or 0),
        last=int(option(origin.stopIndex()) or 0),
        is_aliased=is_aliased,
    )


def needs_all_columns(plan: Any) -> bool:
    """Whether a statement may need columns that it does not name: by a star, or by what its parts do."""

    def kinds(node: Any) -> Iterator[tuple[str, Any]]:
        yield node.getClass().getSimpleName(), node
        if node.getClass().getSimpleName() == "UnresolvedWith":
            for pair in items(node.cteRelations()):
                yield from kinds(pair._2())
        for part in (node.children(), node.subqueries()):
            for child in items(part):
                yield from kinds(child)

    for kind, node in kinds(plan):
        if kind not in TRANSPARENT:
            return True
        if kind == "Join" and "Natural" in node.joinType().toString():
            return True
        if kind in ("Project", "Aggregate") and "*" in node.toString():
            return True
    return False


def limit_of(plan: Any) -> int | None:
    """The number of a LIMIT that ends the statement."""
    if plan.getClass().getSimpleName() != "GlobalLimit":
        return None
    text = str(plan.limitExpr().toString())
    return int(text) if text.isdigit() else None


def replaced(text: Text, relation: Relation, name: str) -> Text:
    """The text with another name for a relation of several parts. The last one in a line comes first."""
    whole = text.whole
    found = _DOTTED.search(whole, relation.first, relation.last + 1)
    if found is None:
        return text
    changed = whole[: found.start()] + name + whole[found.end() :]
    line, column = line_and_column(whole, found.start())
    changes = (*text.changes, (line, column, len(name) - len(found[0])))
    return Text(text.blanks, changed[len(text.blanks) :], changes)


def renamed(query: str, relation: Relation, offset: int, name: str) -> str:
    """The query with another name for a relation, and the old one as its alias where it has none.

    `offset` is the place of the query in the text that the relation's places are of.
    """
    first, last = relation.first - offset, relation.last + 1 - offset
    found = re.compile(_NAME).search(query, after_stream(query, first), last)
    if found is None or (name == relation.name and found[0].strip("`") == name):
        return query
    is_same = name.casefold() == relation.name.casefold()
    alias = "" if relation.is_aliased or is_same else f" AS {quoted(relation.name)}"
    return query[: found.start()] + name + query[found.end() : last] + alias + query[last:]


def after_stream(query: str, first: int) -> int:
    """Where the name begins: behind STREAM and its bracket."""
    found = re.compile(r"STREAM\b\s*\(?\s*", re.IGNORECASE).match(query, first)
    return found.end() if found else first
