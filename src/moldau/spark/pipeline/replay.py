"""One output of a project once more, from an earlier position of its topics, beside the old one.

The flows into the output are run until they have caught up, with checkpoints of their own, into an output of a new
name: a table in the storage, or the same kind of sink on another topic or path. The old output, its checkpoints and
its consumer group are not touched. Topics are read from the position; tables of the project are read as they are,
from their beginning.
"""

from __future__ import annotations

import os
from dataclasses import replace
from difflib import get_close_matches

from moldau.spark.pipeline.declared import Declared, Kind, Mistake, Output, Place
from moldau.spark.pipeline.plan import FILE_FORMATS

LAKE_FORMATS = FILE_FORMATS | {"moldau_lake"}
TOPIC_FORMATS = frozenset({"moldau", "kafka"})


def redirected(declared: Declared, output: str, into: str) -> Declared:
    """The same project with the flows of `output` once more, into `into`."""
    old = wanted_output(declared, output)
    if into in declared.outputs:
        raise Mistake(
            old.place, f"the project has an output '{into}' already.", "Name a new one with --into."
        )
    new = renamed(old, into)
    copies = {}
    for flow in declared.flows_into(output):
        name = into if flow.name == output else f"{flow.name}_{into}"
        copies[name] = replace(flow, name=name, target=into)
    return Declared({**declared.outputs, into: new}, {**declared.flows, **copies})


def wanted_output(declared: Declared, output: str) -> Output:
    found = declared.outputs.get(output)
    choices = [name for name, one in declared.outputs.items() if one.kind is not Kind.VIEW]
    if found is None:
        near = get_close_matches(output, choices, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(choices)}."
        raise Mistake(Place("spark-pipeline.yml"), f"the project has no output '{output}'.", hint)
    if found.kind in (Kind.VIEW, Kind.MATERIALIZED):
        raise Mistake(
            found.place,
            f"'{output}' is a {found.kind.value}, which is computed from what there is.",
            "Replay the streaming table or sink that you want again.",
        )
    return found


def renamed(old: Output, into: str) -> Output:
    options = dict(old.options)
    if old.kind is Kind.SINK:
        key = "topic" if old.format in TOPIC_FORMATS else "path"
        found = next((name for name in options if name.lower() == key), None)
        if old.format in TOPIC_FORMATS:
            options[found or "topic"] = into
        elif old.format in LAKE_FORMATS and found is not None:
            options[found] = os.path.join(os.path.dirname(options[found].rstrip("/")), into)
    return replace(old, name=into, options=options)
