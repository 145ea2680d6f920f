"""Loads a project's files and collects what they declare: a registry of ours behind Spark's `dp` decorators, in a
classic session.

Python files are run as Spark's own runner runs them: in the project's folder, with a global `spark`, in modules
that are not importable by name. Each file gives at most one mistake; the others are looked at all the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.pipelines.flow import AutoCdcFlow
from pyspark.pipelines.flow import Flow as SparkFlow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Sink, StreamingTable, TemporaryView
from pyspark.pipelines.output import Output as SparkOutput

from moldau.spark.pipeline.declared import ChangeData, Declared, Flow, Kind, Mistake, Mistakes, Output, Place
from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.sentences import sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = (
    (StreamingTable, Kind.TABLE),
    (MaterializedView, Kind.MATERIALIZED),
    (TemporaryView, Kind.VIEW),
    (Sink, Kind.SINK),
)


def load(project: Project, spark: SparkSession) -> Declared:
    """What the project's files declare; `Mistakes` where they are not right."""
    registry = Registry(project, spark)
    found: list[Mistake] = []
    with in_folder(project.folder), graph_element_registration_context(registry):
        for path in project.files():
            try:
                registry.load_file(path)
            except Mistake as mistake:
                found.append(mistake)
    if found:
        raise Mistakes(found)
    return registry.declared


class Registry(GraphElementRegistry):
    def __init__(self, project: Project, spark: SparkSession) -> None:
        self.declared = Declared()
        self._project = project
        self._spark = spark

    def register_output(self, output: SparkOutput) -> None:
        kind = next((kind for type_, kind in KINDS if isinstance(output, type_)), None)
        place = self._place(output)
        if kind is None:
            raise Mistake(place, f"an output of the kind {type(output).__name__} is not known here.")
        self.declared.add_output(
            Output(
                name=output.name,
                kind=kind,
                place=place,
                format=getattr(output, "format", None),
                options=options_of(getattr(output, "options", {}), place),
                properties=dict(getattr(output, "table_properties", {})),
                schema=getattr(output, "schema", None),
                partition_by=tuple(getattr(output, "partition_cols", None) or ()),
            )
        )

    def register_flow(self, flow: SparkFlow) -> None:
        self.declared.add_flow(
            Flow(
                name=flow.name,
                target=flow.target,
                place=self._place(flow),
                query=flow.func,
                conf=dict(flow.spark_conf),
            )
        )

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        spark = self._spark
        source = flow.source
        self.declared.add_flow(
            Flow(
                name=flow.name or flow.target,
                target=flow.target,
                place=self._place(flow),
                query=lambda: spark.readStream.table(source),
                conf=dict(flow.spark_conf),
                change_data=ChangeData(
                    source=source,
                    keys=names_of(flow.keys) or (),
                    sequence_by=text_of(flow.sequence_by),
                    delete_when=None if flow.apply_as_deletes is None else text_of(flow.apply_as_deletes),
                    columns=names_of(flow.column_list),
                    except_columns=names_of(flow.except_column_list),
                    scd_type=int(flow.stored_as_scd_type or 1),
                    track_history=names_of(flow.track_history_column_list),
                    track_history_except=names_of(flow.track_history_except_column_list),
                ),
            )
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        from moldau.spark.pipeline.sql import declare_statements

        declare_statements(self._spark, self.declared, sql_text, str(file_path))

    def load_file(self, path: Path) -> None:
        relative = path.relative_to(self._project.folder)
        try:
            if path.suffix == ".sql":
                self.register_sql(path.read_text(encoding="utf-8"), relative)
            else:
                self._run_python(path)
        except UnicodeDecodeError:
            raise Mistake(Place(str(relative)), "is not a text in UTF-8.") from None

    def _run_python(self, path: Path) -> None:
        spec = importlib.util.spec_from_file_location(path.stem, str(path))
        assert spec is not None and spec.loader is not None, path
        module = importlib.util.module_from_spec(spec)
        module.__dict__["spark"] = self._spark
        try:
            spec.loader.exec_module(module)
        except Mistake:
            raise
        except SyntaxError as error:
            raise Mistake(
                self._project.place(error.filename or str(path), error.lineno), f"is not Python: {error.msg}."
            ) from error
        except Exception as error:
            raise Mistake(place_of(error, self._project, Place(path.name)), sentence(error)) from error

    def _place(self, element: Any) -> Place:
        location = element.source_code_location
        return self._project.place(location.filename, location.line_number)


def place_of(error: BaseException, project: Project, otherwise: Place) -> Place:
    """The last line of the project's own files on the way to the error."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        place = project.place(frame.filename, frame.lineno)
        if not os.path.isabs(place.file) and (project.folder / place.file).is_file():
            return place
    return otherwise


def options_of(options: Any, place: Place) -> dict[str, str]:
    wrong = [key for key, value in options.items() if not isinstance(value, str | int | float | bool)]
    if wrong:
        raise Mistake(place, f"the option '{wrong[0]}' must be a text.")
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()
    }


def names_of(columns: Any) -> tuple[str, ...] | None:
    return tuple(text_of(column).strip("`") for column in columns) if columns else None


def text_of(column: Any) -> str:
    """A column as SQL: `dp` makes Connect columns of texts, and a project's own columns are classic ones."""
    expression = getattr(column, "_expr", None)
    for attribute in ("_unparsed_identifier", "_expr"):
        if isinstance(text := getattr(expression, attribute, None), str):
            return text
    return str(column._jc.toString()) if hasattr(column, "_jc") else str(column)


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
