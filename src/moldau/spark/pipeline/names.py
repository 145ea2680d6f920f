"""While a flow's query is built, the project's names mean its own tables and views.

A name is read as a stream (`spark.readStream.table("t")`, `FROM STREAM t`) or as a table of rows
(`spark.table("t")`, `spark.read.table("t")`, `FROM t`). Spark has one temporary view for a name, so the view is
made anew for what each call asks; a query is analysed at once, and keeps what it found. Names that the project does
not declare are Spark's business.

Within `in_force` the methods of the classic session that take names or SQL ask here first, as Spark's own runner
replaces methods of the Connect session while it loads a project.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.sql import relations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Look = Callable[[str, bool], None]
"""Called with a name, and whether it is to be a stream, before Spark looks for it."""
Options = Callable[[str, dict[str, str]], dict[str, str]]
"""Called with a source's format and options before a stream is loaded: options that win over the project's."""


@contextlib.contextmanager
def in_force(spark: SparkSession, look: Look, more_options: Options | None = None) -> Iterator[None]:
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader

    def by_name(is_stream: bool) -> Callable[[Any, str], None]:
        return lambda _self, name: look(name, is_stream)

    def by_text(_self: Any, text: Any) -> None:
        if isinstance(text, str):
            for name, is_stream in relations_of_text(spark, text):
                look(name, is_stream)

    with contextlib.ExitStack() as stack:
        for owner, method, before in (
            (SparkSession, "sql", by_text),
            (SparkSession, "table", by_name(False)),
            (DataFrameReader, "table", by_name(False)),
            (DataStreamReader, "table", by_name(True)),
        ):
            stack.enter_context(replaced(owner, method, asking_first(getattr(owner, method), before)))
        if more_options is not None:
            stack.enter_context(loading_with(DataStreamReader, more_options))
        yield


def asking_first(method: Callable[..., Any], before: Callable[[Any, Any], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else next(iter(kwargs.values()), None)
        before(self, first)
        return method(self, *args, **kwargs)

    return wrapper


@contextlib.contextmanager
def loading_with(reader: Any, more_options: Options) -> Iterator[None]:
    """A stream's `load` with more options; what it is to load is remembered from the calls that say it."""
    originals = {name: getattr(reader, name) for name in ("format", "option", "options", "load")}

    def remembered(self: Any) -> dict[str, Any]:
        known: dict[str, Any] = self.__dict__.setdefault("_moldau_options", {})
        return known

    def format_(self: Any, source: str) -> Any:
        self._moldau_format = source
        return originals["format"](self, source)

    def option(self: Any, key: str, value: Any) -> Any:
        remembered(self)[key] = value
        return originals["option"](self, key, value)

    def options(self: Any, **given: Any) -> Any:
        remembered(self).update(given)
        return originals["options"](self, **given)

    def load(
        self: Any, path: str | None = None, format: str | None = None, schema: Any = None, **given: Any
    ) -> Any:
        known = {key: str(value) for key, value in {**remembered(self), **given}.items()}
        more = more_options(str(format or getattr(self, "_moldau_format", "")), known)
        originals["options"](self, **{**given, **more})
        return originals["load"](self, path, format, schema)

    with contextlib.ExitStack() as stack:
        for name, method in (("format", format_), ("option", option), ("options", options), ("load", load)):
            stack.enter_context(replaced(reader, name, method))
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def relations_of_text(spark: SparkSession, text: str) -> list[tuple[str, bool]]:
    """What a SQL text reads; nothing where it is not right, which Spark says better."""
    from pyspark.errors import PySparkException

    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except PySparkException:
        return []
    return relations(plan)
