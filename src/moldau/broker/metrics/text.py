"""Samples as Prometheus' text format, made in slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.broker.metrics.counters import Histogram
from moldau.broker.metrics.table import FAMILIES
from moldau.runtime.line import Slices


class Sample(NamedTuple):
    """All values of one family, each with what stands behind the name: `{api="Fetch"}` or nothing."""

    name: str
    values: tuple[tuple[str, float], ...]


Samples = Iterator[Sample | None]
"""None is a place to pause."""


def plain(name: str, value: float) -> Sample:
    return Sample(name, (("", value),))


def labelled(**labels: str) -> str:
    """`{name="value",...}`"""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def buckets(histogram: Histogram, labels: str = "") -> Iterator[tuple[str, float]]:
    """The values of a histogram; `labels` as in `labelled`."""
    begin = labels.removesuffix("}") + "," if labels else "{"
    count = 0
    for bound, here in zip((*histogram.bounds, None), histogram.counts, strict=True):
        count += here
        le = "+Inf" if bound is None else f"{bound:g}"
        yield f'_bucket{begin}le="{le}"}}', count
    yield f"_sum{labels}", histogram.seconds
    yield f"_count{labels}", count


def exposition(samples: Iterable[Sample | None]) -> Slices[str]:
    lines: list[str] = []
    for sample in samples:
        if sample is not None:
            name, values = sample
            family = FAMILIES[name]
            lines.append(f"# HELP {name} {family.help}")
            lines.append(f"# TYPE {name} {family.kind}")
            lines += [f"{name}{behind} {value!r}" for behind, value in values]
        yield
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
