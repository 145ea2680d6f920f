"""Counting the error codes in an answer: functions compiled from kio's message classes, as the writers are.

They look at the fields that the answer's version has of error codes, in all arrays, and at nothing else. The one for a
large answer is a generator that pauses between the elements of its outermost arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from moldau.runtime.line import Slices
from moldau.wire.schema import message_class, plain_fields

Counter = Callable[[Any, dict[int, int]], None]
SlicedCounter = Callable[[Any, dict[int, int]], Slices[None]]


@cache
def counter_of_errors(api_key: int, version: int) -> Counter:
    """Adds an answer's errors to those that were counted, by code."""
    counter: Counter = _compiled(api_key, version, sliced=False)
    return counter


@cache
def sliced_counter_of_errors(api_key: int, version: int) -> SlicedCounter:
    counter: SlicedCounter = _compiled(api_key, version, sliced=True)
    return counter


def _compiled(api_key: int, version: int, *, sliced: bool) -> Any:
    struct = message_class("response", api_key, version)
    lines = _looks_into(struct, "message", 1, sliced)
    source = "\n".join(["def count(message, found):", *lines, " return", " yield" if sliced else ""])
    names: dict[str, Any] = {}
    exec(compile(source, f"<errors in {struct.__module__}.{struct.__qualname__}>", "exec"), names)
    return names["count"]


def _looks_into(struct: type[Any], owner: str, depth: int, sliced: bool) -> list[str]:
    """The lines that look at one struct. None stands for an absent struct or array."""
    indent = " " * depth
    lines = []
    for spec in plain_fields(struct):
        # An object of the newest version may have no fields that only older ones have.
        value = f"getattr({owner}, {spec.name!r}, None)"
        if spec.kafka_type == "error_code" and not spec.is_array:
            lines.append(f"{indent}code = {value}")
            lines.append(f"{indent}if code: found[code] = found.get(code, 0) + 1")
        elif spec.struct is not None:
            item = f"item{depth}"
            inner = _looks_into(spec.struct, item, depth + 1, False)
            if inner:
                items = f"{value} or ()" if spec.is_array else f"({value},)"
                lines += [f"{indent}for {item} in {items}:", *inner]
                if sliced:
                    lines.append(f"{indent} yield")
    return lines
