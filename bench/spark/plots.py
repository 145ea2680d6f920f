"""The pictures of docs/benchmarks-spark.md, as PNG: one for a section, of its medians."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from bench.spark import plan as names
from bench.spark import reading, streaming
from bench.spark.results import Section

GREYS: Final = ("#adb5bd", "#6c757d")
BLUES: Final = ("#2a6f97", "#61a5c2", "#a9d6e5")
CPU_PARTS: Final = {"JVM": "#6c757d", "workers": "#2a6f97", "driver": "#a9d6e5", "broker": "#e9c46a"}
WITH_BARS: Final = (names.READING, names.COUNTING, names.JSON, names.FALLBACK, names.SINK)


def draw(name: str, section: Section, folder: Path) -> str | None:
    """Write the section's picture; the name of its file. None: there is nothing to be seen."""
    if name in WITH_BARS:
        figure = _bars(section)
    elif name == names.LATENCY:
        figure = _percentiles(section)
    elif name == names.PARTITIONS:
        figure = _by_partitions(section)
    else:
        return None
    if figure is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    file = f"benchmarks-spark-{name.lower().replace(' ', '-')}.png"
    figure.savefig(folder / file, dpi=110, bbox_inches="tight")
    plt.close(figure)
    return file


def colours(sides: list[str]) -> dict[str, str]:
    """Ours are blue, the connector's grey."""
    greys, blues = iter(GREYS), iter(BLUES)
    return {side: next(blues if side.startswith("Moldau") else greys) for side in sides}


def _bars(section: Section) -> Figure | None:
    """Rows a second on the left; CPU by process on the right."""
    cases, sides = list(section.metrics.get(reading.ROWS, {})), section.sides(reading.ROWS)
    if not cases:
        return None
    figure, (rows, cpu) = plt.subplots(1, 2, figsize=(12, 0.22 * len(cases) * len(sides) + 1.6), sharey=True)
    height = 0.8 / len(sides)
    for index, (side, colour) in enumerate(colours(sides).items()):
        places = [number + index * height for number in range(len(cases))]
        found = [section.median(reading.ROWS, case, side) or 0 for case in cases]
        rows.barh(places, found, height, color=colour, label=side)
        left = [0.0] * len(cases)
        for part, shade in CPU_PARTS.items():
            widths = [section.median(f"{reading.CPU}: {part}", case, side) or 0 for case in cases]
            label = part if index == 0 else None
            cpu.barh(places, widths, height * 0.9, left=left, color=shade, label=label)
            left = [start + width for start, width in zip(left, widths, strict=True)]
    rows.set_yticks([number + 0.4 - height / 2 for number in range(len(cases))], cases)
    rows.invert_yaxis()
    rows.set_xlabel("M rows/s")
    cpu.set_xlabel("CPU, s/M rows, in the same order")
    for axes in (rows, cpu):
        axes.grid(alpha=0.3, axis="x")
        axes.legend(fontsize=8)
    return figure


def _percentiles(section: Section) -> Figure | None:
    wanted = [f"{streaming.LATENCY}, {name}" for name in ("p50", "p95", "p99", "largest")]
    sides = section.sides(wanted[0])
    if not sides:
        return None
    figure, axes = plt.subplots(figsize=(6, 3.4))
    for side, colour in colours(sides).items():
        found = [section.median(metric, streaming.PACED, side) for metric in wanted]
        axes.plot([metric.rpartition(", ")[2] for metric in wanted], found, "o-", color=colour, label=side)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("ms")
    axes.set_title(streaming.PACED, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _by_partitions(section: Section) -> Figure | None:
    sides = section.sides(streaming.BATCH_TIME)
    if not sides:
        return None
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.4))
    for axes, metric in zip(panels, (streaming.BATCH_TIME, streaming.BATCH_CPU), strict=True):
        for side, colour in colours(sides).items():
            found = {
                int(case.split()[0]): section.median(metric, case, side) for case in section.metrics[metric]
            }
            axes.plot(list(found), list(found.values()), "o-", color=colour, label=side)
        axes.set_title(f"{metric}, ms", fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(found), list(map(str, found)))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("partitions")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return figure
