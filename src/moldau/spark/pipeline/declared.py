"""What a project declares: outputs, and flows into them, each with the file and line where it was written.

Plain values, apart from Spark: a flow's query is a function that is called when the graph is built, and once more at
every start of the flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something was written: a file, relative to the project's folder, and a line, from 1."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Mistake(Exception):
    """Something in the project that has to be mended: where it is, one sentence, and perhaps what to do."""

    def __init__(self, place: Place, message: str, hint: str = "") -> None:
        super().__init__(f"{place}: {message}")
        self.place = place
        self.message = message
        self.hint = hint


class Mistakes(Exception):
    """All that a check has found."""

    def __init__(self, found: Iterable[Mistake]) -> None:
        self.found = sorted(found, key=lambda mistake: (mistake.place.file, mistake.place.line or 0))
        super().__init__("\n".join(map(str, self.found)))


class Kind(Enum):
    """What an output is; the value is how it is called in sentences."""

    TABLE = "streaming table"
    MATERIALIZED = "materialized view"
    VIEW = "temporary view"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    kind: Kind
    place: Place
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Of a sink."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of a table."""
    schema: Any = None
    """As declared: a StructType or a DDL text."""
    partition_by: tuple[str, ...] = ()

    @property
    def is_stored(self) -> bool:
        return self.kind in (Kind.TABLE, Kind.MATERIALIZED)


@dataclass(frozen=True, slots=True)
class ChangeData:
    """How change events become rows of a table: `create_auto_cdc_flow`, `AUTO CDC INTO`. Expressions are SQL texts."""

    source: str
    keys: tuple[str, ...]
    sequence_by: str
    delete_when: str | None = None
    columns: tuple[str, ...] | None = None
    except_columns: tuple[str, ...] | None = None
    scd_type: int = 1
    track_history: tuple[str, ...] | None = None
    track_history_except: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A query whose rows go into an output: into the one of its own name, or into another by an append flow."""

    name: str
    target: str
    place: Place
    query: Callable[[], DataFrame]
    conf: Mapping[str, str] = field(default_factory=dict)
    change_data: ChangeData | None = None


@dataclass(slots=True)
class Declared:
    """All outputs and flows of a project, in the order of their declaration."""

    outputs: dict[str, Output] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)

    def add_output(self, output: Output) -> None:
        if earlier := self.outputs.get(output.name):
            raise Mistake(
                output.place,
                f"there is a {earlier.kind.value} '{output.name}' already, declared at {earlier.place}.",
            )
        if output.name.startswith("_") and output.is_stored:
            raise Mistake(
                output.place,
                f"a {output.kind.value} may not be called '{output.name}': "
                "folders that begin with _ are the runner's own.",
            )
        if "." in output.name or "/" in output.name:
            raise Mistake(
                output.place,
                f"'{output.name}' is not a plain name.",
                "The tables of a project are kept in its storage; write the name without catalog and database.",
            )
        self.outputs[output.name] = output

    def add_flow(self, flow: Flow) -> None:
        if earlier := self.flows.get(flow.name):
            raise Mistake(
                flow.place,
                f"there is a flow '{flow.name}' already, declared at {earlier.place}.",
                "Give one of them another name.",
            )
        self.flows[flow.name] = flow

    def flows_into(self, target: str) -> list[Flow]:
        return [flow for flow in self.flows.values() if flow.target == target]
