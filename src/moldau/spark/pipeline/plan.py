"""What the declarations alone say about a project, before any query is built; and the order of its flows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from moldau.spark.pipeline.declared import Declared, Flow, Kind, Mistake, Output

FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
"""Spark's file sinks: their folder keeps the log of one query."""
TABLE_FORMATS = frozenset({"delta", "moldau_lake"})


def static_mistakes(declared: Declared) -> Iterator[Mistake]:
    for flow in declared.flows.values():
        if flow.target not in declared.outputs:
            yield unknown_target(flow, declared)
    for output in declared.outputs.values():
        yield from mistakes_of(output, declared.flows_into(output.name))


def unknown_target(flow: Flow, declared: Declared) -> Mistake:
    near = get_close_matches(flow.target, declared.outputs, n=1)
    hint = (
        f"Did you mean {near[0]}?" if near else f'`dp.create_streaming_table("{flow.target}")` declares one.'
    )
    return Mistake(
        flow.place, f"the flow '{flow.name}' writes to '{flow.target}', which is not declared.", hint
    )


def mistakes_of(output: Output, flows: list[Flow]) -> Iterator[Mistake]:
    name, kind = output.name, output.kind.value
    if not flows:
        yield Mistake(
            output.place,
            f"no flow writes to the {kind} '{name}'.",
            f'`@dp.append_flow(target="{name}")` adds one.',
        )
    if len(flows) > 1 and output.kind in (Kind.VIEW, Kind.MATERIALIZED):
        yield Mistake(flows[1].place, f"a {kind} has one query, and '{name}' has one at {flows[0].place}.")
    if len(flows) > 1 and output.format in FILE_FORMATS and output.kind is Kind.SINK:
        yield Mistake(
            flows[1].place,
            f"a second flow into the {output.format} sink '{name}' would lose rows: "
            f"its folder keeps the log of one query, the one at {flows[0].place}.",
            "Use format moldau_lake, where any number of flows may write, or a sink for each.",
        )
    if len(flows) > 1 and any(flow.change_data for flow in flows):
        yield Mistake(flows[1].place, f"a table of change data has one flow, and '{name}' has {len(flows)}.")
    if any(flow.change_data for flow in flows) and output.kind is not Kind.TABLE:
        yield Mistake(flows[0].place, f"change data goes into a streaming table, and '{name}' is a {kind}.")
    if output.kind is Kind.SINK and output.format in FILE_FORMATS and "path" not in output.options:
        yield Mistake(output.place, f"the {output.format} sink '{name}' needs the option 'path'.")


def order(targets: Mapping[str, str], reads: Mapping[str, Collection[str]]) -> list[str]:
    """The flows so that each comes after those that write what it reads; otherwise as they were declared.

    `targets` has each flow's output, `reads` the outputs that it reads. `Cycle` where there is no such order.
    """
    ordered: dict[str, None] = {}
    below: list[str] = []

    def visit(flow: str) -> None:
        if flow in ordered:
            return
        if flow in below:
            raise Cycle([*below[below.index(flow) :], flow])
        below.append(flow)
        for output in reads.get(flow, ()):
            for writer, target in targets.items():
                if target == output:
                    visit(writer)
        below.pop()
        ordered[flow] = None

    for flow in targets:
        visit(flow)
    return list(ordered)


class Cycle(Exception):
    """Flows that wait for each other, the first of them once more at the end."""

    def __init__(self, flows: list[str]) -> None:
        super().__init__(" -> ".join(flows))
        self.flows = flows

    def mistake(self, declared: Declared) -> Mistake:
        return Mistake(
            declared.flows[self.flows[0]].place,
            f"the flows read each other in a circle: {' reads '.join(self.flows)}.",
        )
