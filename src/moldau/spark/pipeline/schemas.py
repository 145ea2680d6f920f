"""The columns of a table that several flows write to: the union of theirs, by name, with one type for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.spark.pipeline.declared import Flow, Mistake, Output

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def merged(parts: Sequence[tuple[Flow, StructType]]) -> StructType:
    from pyspark.sql.types import NullType, StructField, StructType

    fields: dict[str, StructField] = {}
    first: dict[str, Flow] = {}
    for flow, schema in parts:
        for field in schema:
            if isinstance(field.dataType, NullType):
                raise Mistake(
                    flow.place, f"the column '{field.name}' of '{flow.name}' has no type.", "Cast it."
                )
            earlier = fields.get(field.name)
            if earlier is not None and earlier.dataType != field.dataType:
                raise Mistake(
                    flow.place,
                    f"the column '{field.name}' is {field.dataType.simpleString()} here and "
                    f"{earlier.dataType.simpleString()} in the flow at {first[field.name].place}.",
                    "Cast one of them.",
                )
            fields.setdefault(field.name, StructField(field.name, field.dataType, True))
            first.setdefault(field.name, flow)
    return StructType(list(fields.values()))


def refuse_misfit(flow: Flow, schema: StructType, output: Output, declared: StructType) -> None:
    """A flow into a table with a declared schema brings some of its columns, in its types."""
    types = {field.name: field.dataType for field in declared}
    for field in schema:
        if field.name not in types:
            raise Mistake(
                flow.place,
                f"'{flow.name}' has a column '{field.name}', which the schema of '{output.name}' "
                f"at {output.place} does not have.",
            )
        if types[field.name] != field.dataType:
            raise Mistake(
                flow.place,
                f"the column '{field.name}' of '{flow.name}' is {field.dataType.simpleString()}, and "
                f"{types[field.name].simpleString()} in the schema of '{output.name}' at {output.place}.",
                "Cast it.",
            )
