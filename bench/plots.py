"""The pictures of docs/benchmarks.md, as PNG."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from bench.measure import Series
from bench.report import KAFKA, MOLDAU
from bench.runner import Results

COLOURS = {MOLDAU: "#2a6f97", KAFKA: "#adb5bd"}
PERCENTILES = ("p50", "p95", "p99", "p99.9")
LATENCIES = ("synchronous produce", "paced produce, 1000/s", "end to end, 500/s")


def draw(results: Results, folder: Path) -> list[str]:
    """Write the plots; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw_one in (("cpu", _cpu), ("latency", _latency), ("lookup", _look_up)):
        figure = draw_one(results)
        if figure is not None:
            file = f"benchmarks-{name}.png"
            figure.savefig(folder / file, dpi=110, bbox_inches="tight")
            plt.close(figure)
            drawn.append(file)
    return drawn


def _medians(series: Series) -> dict[str, float]:
    summaries = {broker: series.summary(broker) for broker in COLOURS}
    return {broker: summary.median for broker, summary in summaries.items() if summary is not None}


def _cpu(results: Results) -> Figure | None:
    """Moldau's CPU as a share of Kafka's, for each piece of work."""
    shares = {}
    for section in results.sections.values():
        for name, series in section.items():
            medians = _medians(series)
            if (
                series.unit in ("ms/MB", "us")
                and not name.endswith("p50")
                and "log of" not in name
                and len(medians) == 2
            ):
                shares[name.removeprefix("broker CPU ").removeprefix("to ")] = (
                    medians[MOLDAU] / medians[KAFKA]
                )
    if not shares:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.35 * len(shares) + 1))
    names = list(shares)[::-1]
    axes.barh(names, [shares[name] for name in names], color=COLOURS[MOLDAU])
    axes.axvline(1, color=COLOURS[KAFKA], linewidth=3)
    axes.set_xlabel("broker CPU of Moldau, as a multiple of Apache Kafka's (grey line)")
    return figure


def _latency(results: Results) -> Figure | None:
    section = results.sections.get("Latency")
    if section is None:
        return None
    figure, panels = plt.subplots(1, len(LATENCIES), figsize=(4 * len(LATENCIES), 3.2), sharey=True)
    for axes, what in zip(panels, LATENCIES, strict=True):
        for broker, colour in COLOURS.items():
            points = [section[f"{what}, {p}"].summary(broker) for p in PERCENTILES]
            axes.plot(
                PERCENTILES,
                [point.median if point else None for point in points],
                "o-",
                color=colour,
                label=broker,
            )
        axes.set_title(what, fontsize=10)
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("ms")
    panels[0].legend()
    return figure


def _look_up(results: Results) -> Figure | None:
    section = results.sections.get("Look-up in a growing log")
    if section is None:
        return None
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for axes, what in zip(panels, ("fetch at a random offset", "offset of a timestamp"), strict=True):
        for broker, colour in COLOURS.items():
            points = {}
            for name, series in section.items():
                size = re.search(r"log of (\d+) (MB|GB), broker CPU", name)
                median = _medians(series).get(broker)
                if name.startswith(what) and size and median is not None:
                    points[int(size[1]) * (1000 if size[2] == "GB" else 1)] = median
            axes.plot(list(points), list(points.values()), "o-", color=colour, label=broker)
        axes.set_title(what, fontsize=10)
        axes.set_xscale("log")
        axes.set_xlabel("size of the log, MB")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("broker CPU, us")
    panels[0].legend()
    return figure
