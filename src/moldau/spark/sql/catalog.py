"""What a name in a statement means: a view or a streaming table of this session, a declared table, or a topic.

A topic that is not declared has the columns that a sample of its records shows, looked at anew for each statement:
one that has been filled or made again since is seen as it is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from moldau.spark.pipeline.sql import items, mapping, option
from moldau.spark.sql.cluster import Brokers, Unreachable
from moldau.spark.sql.inference import Format, infer
from moldau.spark.sql.mistakes import Mistake, NotFound
from moldau.spark.sql.reads import Table, declared_shape

OPTIONS_OF_TABLE = ("topic", "format")
REMEMBER_S = 30.0
"""For how long completion uses what it has seen."""
PATIENCE_S = 1.0
"""How long completion waits for the brokers."""


class Catalog:
    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.declared: dict[str, Table] = {}
        """By their names in lower case."""
        self._topics: tuple[float, list[str]] = (0.0, [])
        self._columns: dict[str, tuple[float, list[str]]] = {}

    def table(self, name: str, deadline_s: float | None = None) -> Table | None:
        """A declared table, or the topic of that very name; None where there is neither."""
        if declared := self.declared.get(name.casefold()):
            return declared
        sample = self.brokers.sample(name) if deadline_s is None else self.brokers.sample(name, deadline_s)
        return None if sample is None else Table(name, name, infer(sample.values, sample.keys))

    def missing(self, name: str, others: Collection[str], place: tuple[int, int] | None = None) -> NotFound:
        known = [*others, *(table.name for table in self.declared.values()), *self.brokers.topics()]
        near = get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else "SHOW TOPICS lists what there is."
        return NotFound(f"There is no topic, table or view '{name}'.", hint, place)

    def declare(self, plan: Any) -> Table:
        """A parsed CREATE TABLE."""
        table = table_of(plan)
        self.declared[table.name.casefold()] = table
        self._columns.pop(table.name, None)
        return table

    def known_topics(self) -> list[str]:
        """For completion: at most some seconds old, and none where the brokers do not answer soon."""
        at, names = self._topics
        if time.monotonic() >= at:
            try:
                names = list(self.brokers.topics(PATIENCE_S))
            except Unreachable:
                return names
            self._topics = time.monotonic() + REMEMBER_S, names
        return names

    def known_columns(self, name: str) -> list[str]:
        """For completion: of a declared table or a topic."""
        at, columns = self._columns.get(name, (0.0, []))
        if time.monotonic() >= at:
            try:
                table = self.table(name, PATIENCE_S)
            except Unreachable:
                return columns
            columns = [] if table is None else [one for one, _ in [*table.columns(), *table.metadata()]]
            if len(self._columns) > 1000:
                self._columns.clear()
            self._columns[name] = time.monotonic() + REMEMBER_S, columns
        return columns


def table_of(plan: Any) -> Table:
    spec = plan.tableSpec()
    name = ".".join(str(part) for part in items(plan.name().nameParts()))
    provider = option(spec.provider())
    if provider is not None and str(provider).lower() not in ("moldau", "kafka"):
        raise Mistake(
            f"A table here is a topic, and {provider} is none.",
            "Leave USING out. CREATE STREAMING TABLE .. USING delta writes to the lake.",
        )
    if items(plan.partitioning()):
        raise Mistake("A topic is not partitioned by columns.", "Leave PARTITIONED BY out.")
    given = {**option_values(spec), **mapping(spec.properties())}
    lower = {key.lower(): key for key in given}
    topic = given.get(lower.get("topic", ""), name)
    format_name = given.get(lower.get("format", ""), "json").lower()
    if format_name not in ("json", "string"):
        raise Mistake(f"The format '{format_name}' is not known.", "It is json or string.")
    columns = [(str(one.name()), str(one.dataType().sql())) for one in items(plan.columns())]
    options = {key: value for key, value in given.items() if key.lower() not in OPTIONS_OF_TABLE}
    if not columns:
        raise Mistake(f"The table '{name}' has no columns.", "Write CREATE TABLE name (id INT, ...).")
    if format_name == "string":
        if len(columns) != 1 or columns[0][1] != "STRING":
            raise Mistake("A table of the format string has one column, a STRING.")
        shape = declared_shape((), Format.STRING)
        return Table(name, topic, shape, options, True, columns[0][0])
    return Table(name, topic, declared_shape(columns, Format.JSON), options, True)


def option_values(spec: Any) -> dict[str, str]:
    """OPTIONS (..) of a parsed table: expressions that Spark has not looked at yet."""
    given = spec.optionExpression()
    found: Mapping[str, Any] = {str(pair._1()): pair._2() for pair in items(given.options())}
    return {key: str(value.toString()) for key, value in found.items()}
