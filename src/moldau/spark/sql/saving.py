"""SAVE PIPELINE: the session's streaming tables as a project that `moldau pipeline run` runs.

    spark-pipeline.yml            the project
    transformations/topics.py     how each topic is read, and the sinks
    transformations/<table>.sql   the query of each streaming table, as it was written

The tables are stopped here first, and their checkpoints go with them: the project goes on where they stand. Two
runs of one query would write its rows twice. Passwords are not written: the file takes them from variables.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from moldau.spark.pipeline.sql import option
from moldau.spark.pipeline.tables import CHECKPOINTS, Tables
from moldau.spark.pipeline.template import IGNORED, SPEC
from moldau.spark.sql import texts
from moldau.spark.sql.binding import Bound
from moldau.spark.sql.creation import record_columns
from moldau.spark.sql.mistakes import Mistake
from moldau.spark.sql.reads import Read
from moldau.spark.sql.relations import Relation, relations, renamed
from moldau.spark.sql.streams import Streaming, Streams

_SECRET = re.compile(r"password|secret|jaas|token", re.IGNORECASE)
HEAD = '''\
"""The topics that this pipeline reads and writes, as `moldau sql` saved them."""

{imports}from pyspark import pipelines as dp

{settings}
'''
READER = """

@dp.temporary_view(name={name!r})
def {function}():
    rows = spark.{reader}.format("moldau").options(**{{**KAFKA, **{options}}}).load()
    return rows{selections}
"""
SINK = """

dp.create_sink({name!r}, "moldau", {{**KAFKA, **{options}}})
"""


def save_project(
    folder: str,
    streams: Streams,
    tables: Tables,
    keeps: bool,
    views: Mapping[str, Bound],
    kafka: Mapping[str, str],
) -> str:
    """Write the project; the sentence about it."""
    created = streams.created()
    path = Path(folder)
    if not created:
        raise Mistake(
            "There is no streaming table to save.", "CREATE STREAMING TABLE name AS SELECT .. makes one."
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise Mistake(f"{folder} is not empty.", "Name a folder that does not exist yet.")
    project = Saved(created, views, kafka)
    files = project.files()
    for name in streams.running():
        streams.stop(name)
    streams.news()
    storage = tables.path("").rstrip("/") if keeps else str((path / "storage").resolve())
    spec = SPEC.substitute(name=path.resolve().name, storage=Path(storage).as_uri())
    for name, text in {"spark-pipeline.yml": spec, **files, ".gitignore": IGNORED}.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for name in created:
        hand_over(tables.checkpoint(name, name), storage, project.outputs[name])
    secrets = "".join(f" It takes {variable(key)} from the environment." for key in secret_keys(kafka))
    return (
        f"{', '.join(created)}: saved to {folder}, and stopped here.{secrets} "
        f"`moldau pipeline run {folder}` goes on."
    )


def hand_over(checkpoint: str, storage: str, name: str) -> None:
    target = os.path.join(storage, CHECKPOINTS, name, name)
    if os.path.isdir(checkpoint) and os.path.abspath(checkpoint) != os.path.abspath(target):
        shutil.copytree(checkpoint, target)


class Saved:
    """The texts of a project's files."""

    def __init__(
        self, created: Mapping[str, Streaming], views: Mapping[str, Bound], kafka: Mapping[str, str]
    ) -> None:
        self._created = created
        self._kafka = kafka
        self._taken: set[str] = set()
        self.outputs = {name: self._new_name(name) for name in created}
        """The project's names of the streaming tables."""
        self._used = {name: views[name] for name in used_views(created, views)}
        self._views = {name: self._new_name(str(views[name].plan.name().table())) for name in self._used}
        self._reads: list[tuple[str, Read]] = []

    def files(self) -> dict[str, str]:
        queries = {
            f"transformations/{self.outputs[name]}.sql": self._statements(name, streaming)
            for name, streaming in self._created.items()
        }
        if self._used:
            queries["transformations/views.sql"] = "\n".join(
                f"CREATE TEMPORARY VIEW {self._views[name]} AS\n{self._query(bound, view_query(bound))};\n"
                for name, bound in self._used.items()
            )
        return {"transformations/topics.py": self._python(), **queries}

    def _statements(self, name: str, streaming: Streaming) -> str:
        output, target = streaming.built.output, self.outputs[name]
        query = self._query(streaming.bound, str(streaming.bound.plan.originalText()))
        if not streaming.sink:
            head = f"CREATE STREAMING TABLE {target}"
            if output.partition_by:
                head += f"\nPARTITIONED BY ({', '.join(map(texts.name, output.partition_by))})"
            if output.properties:
                pairs = ", ".join(
                    f"{literal(key)} = {literal(text)}" for key, text in output.properties.items()
                )
                head += f"\nTBLPROPERTIES ({pairs})"
            return f"{head}\nAS {query};\n"
        rows = self._new_name(f"{target}_rows")
        return (
            f"CREATE TEMPORARY VIEW {rows} AS\n{query};\n\n"
            f"CREATE FLOW {target} AS INSERT INTO {target} BY NAME\n"
            f"SELECT {', '.join(record_columns(streaming.key))}\nFROM STREAM {rows};\n"
        )

    def _query(self, bound: Bound, query: str) -> str:
        """A query as it was written, with the project's names where they are others."""
        whole = bound.text.whole
        first = whole.rindex(query)
        names = {relation: self._read_name(read) for relation, read in bound.reads.items()}
        for relation in named_in(bound):
            if relation not in names and (name := self._views.get(relation.name.casefold())):
                names[relation] = name
        for relation in sorted(names, key=lambda one: one.first, reverse=True):
            query = renamed(query, relation, first, names[relation])
        return query

    def _read_name(self, read: Read) -> str:
        for name, one in self._reads:
            if one == read:
                return name
        name = self._new_name(read.table)
        self._reads.append((name, read))
        return name

    def _new_name(self, wanted: str) -> str:
        plain = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        plain = plain if plain[:1].isalpha() else f"t_{plain.lstrip('_')}"
        name, number = plain, 2
        while name.casefold() in self._taken:
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name.casefold())
        return name

    def _python(self) -> str:
        secrets = secret_keys(self._kafka)
        pairs = [
            f"    {f'kafka.{key}'!r}: {f'os.environ[{variable(key)!r}]' if key in secrets else repr(value)},\n"
            for key, value in self._kafka.items()
        ]
        parts = [
            HEAD.format(
                imports="import os\n\n" if secrets else "", settings="KAFKA = {\n" + "".join(pairs) + "}"
            )
        ]
        for name, read in self._reads:
            parts.append(
                READER.format(
                    name=name,
                    function=f"read_{name}",
                    reader="readStream" if read.is_stream else "read",
                    options=dictionary(without(read.options, self._kafka)),
                    selections="".join(
                        f".selectExpr(\n{''.join(f'        {one!r},{chr(10)}' for one in selection)}    )"
                        for selection in read.selections
                    ),
                )
            )
        for name, streaming in self._created.items():
            if streaming.sink:
                options = dictionary(without(streaming.sink, self._kafka))
                parts.append(SINK.format(name=self.outputs[name], options=options))
        return "".join(parts)


def named_in(bound: Bound) -> list[Relation]:
    plan = bound.plan
    kind = plan.getClass().getSimpleName()
    return relations(plan.plan() if kind == "CreateViewCommand" else plan.query())


def used_views(created: Mapping[str, Streaming], views: Mapping[str, Bound]) -> list[str]:
    """The session's views that the tables read, by way of each other too."""
    found: dict[str, None] = {}

    def look(bounds: Iterable[Bound]) -> None:
        for bound in bounds:
            for relation in named_in(bound):
                name = relation.name.casefold()
                if name in views and name not in found:
                    found[name] = None
                    look([views[name]])

    look(streaming.bound for streaming in created.values())
    return list(found)


def view_query(bound: Bound) -> str:
    return str(option(bound.plan.originalText()))


def without(options: Mapping[str, str], kafka: Mapping[str, str]) -> dict[str, str]:
    """What is the query's own, beside the client's settings."""
    return {key: value for key, value in options.items() if key not in {f"kafka.{one}" for one in kafka}}


def dictionary(options: Mapping[str, str]) -> str:
    return "{\n" + "".join(f"        {key!r}: {value!r},\n" for key, value in options.items()) + "    }"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def secret_keys(kafka: Mapping[str, str]) -> list[str]:
    return [key for key in kafka if _SECRET.search(key)]


def variable(key: str) -> str:
    return "KAFKA_" + re.sub(r"\W", "_", key).upper()
