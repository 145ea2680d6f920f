"""Whether memory and open files stay flat in a long run: the samples, a robust trend, a page and a picture of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MB = 1_000_000
WARM_UP_SHARE = 0.25
WARM_UP_S_MIN = 60.0
"""Of the calm: the bounded caches of a broker that has just started fill up, such as that of closed segments."""
JUDGED_S_MIN = 60.0
"""Less says nothing about a trend."""
RSS_GROWTH_MAX = 0.03
FILES_GROWTH_MAX = 8.0
TREND_POINTS_MAX = 300


class Sample(NamedTuple):
    at_s: float
    """Since the run began."""
    rss_bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Trend:
    """How a value moves over the calm: a line that no single sample can tilt (Theil and Sen)."""

    begin: float
    end: float
    """Medians of the first and the last tenth."""
    growth: float
    """What the line gains from the first sample to the last."""


@dataclass(frozen=True, slots=True)
class Flatness:
    rss: Trend
    files: Trend
    seconds: float

    @property
    def problems(self) -> list[str]:
        found = []
        if self.rss.growth > RSS_GROWTH_MAX * self.rss.begin:
            found.append(f"memory grows: {self.rss.growth / MB:+.1f} MB in {self.seconds:.0f} s")
        if self.files.growth > FILES_GROWTH_MAX:
            found.append(f"open files grow: {self.files.growth:+.0f} in {self.seconds:.0f} s")
        return found


@dataclass(frozen=True, slots=True)
class Summary:
    """What the page tells."""

    seed: int
    minutes: float
    kills: int
    stops: int
    acknowledged: int
    read: int
    samples: Sequence[Sample]
    ends_s: Sequence[float]
    """When the broker was ended."""
    calm_from_s: float
    flatness: Flatness | None
    problems: Sequence[str]

    @property
    def verdict(self) -> str:
        if self.problems:
            return "FAILED: " + "; ".join(self.problems[:10])
        return "passed" if self.flatness is not None else "passed (too short to judge memory and files)"


def trend(values: Sequence[tuple[float, float]]) -> Trend:
    points = list(values)[:: max(1, len(values) // TREND_POINTS_MAX)]
    slopes = [
        (later - earlier) / (until - since)
        for i, (since, earlier) in enumerate(points)
        for until, later in points[i + 1 :]
    ]
    tenth = max(1, len(values) // 10)
    begin = statistics.median(value for _, value in values[:tenth])
    end = statistics.median(value for _, value in values[-tenth:])
    return Trend(begin, end, statistics.median(slopes) * (values[-1][0] - values[0][0]))


def flatness(samples: Sequence[Sample], calm_from_s: float) -> Flatness | None:
    """Of the last life of the broker, after its warm-up; None where that was too short."""
    calm_s = samples[-1].at_s - calm_from_s if samples else 0.0
    warm_from_s = calm_from_s + max(WARM_UP_S_MIN, WARM_UP_SHARE * calm_s)
    judged = [sample for sample in samples if sample.at_s >= warm_from_s]
    if not judged or judged[-1].at_s - judged[0].at_s < JUDGED_S_MIN:
        return None
    return Flatness(
        trend([(sample.at_s, sample.rss_bytes) for sample in judged]),
        trend([(sample.at_s, sample.files) for sample in judged]),
        judged[-1].at_s - judged[0].at_s,
    )


def text(summary: Summary) -> list[str]:
    """The numbers, a line each."""
    lines = [
        f"seed {summary.seed}, {summary.minutes:g} minutes",
        f"broker killed {summary.kills} times (kill -9) and stopped {summary.stops} times",
        f"{summary.acknowledged} messages acknowledged, {summary.read} read along the way",
    ]
    flat = summary.flatness
    if flat is not None:
        lines += [
            f"memory (RSS) {flat.rss.begin / MB:.1f} MB at the beginning of the calm, {flat.rss.end / MB:.1f} MB at"
            f" its end; trend {flat.rss.growth / MB:+.2f} MB in {flat.seconds:.0f} s"
            f" (limit {RSS_GROWTH_MAX * flat.rss.begin / MB:+.1f})",
            f"open files {flat.files.begin:.0f} at the beginning, {flat.files.end:.0f} at the end; trend"
            f" {flat.files.growth:+.1f} (limit {FILES_GROWTH_MAX:+.0f})",
        ]
    return [*lines, f"verdict: {summary.verdict}"]


def write_page(summary: Summary, folder: Path) -> None:
    """docs/soak.md and docs/soak.png."""
    folder.mkdir(parents=True, exist_ok=True)
    draw(summary, folder / "soak.png")
    body = "\n".join(f"- {line}" for line in text(summary))
    (folder / "soak.md").write_text(
        f"""# A long run

Written by `make soak MINUTES={summary.minutes:g}`. One broker with small segments, retention by size and by time,
and compaction; idempotent and plain producers, readers and a consumer group. In its first half the broker is killed
and stopped again and again; in the second it is left alone, and memory and open files are to stay flat. At the end
every acknowledged message that retention has not taken is there once and in order, compacted topics hold the last
message of each key, and `moldau log verify` finds no damage.

{body}

![Memory and open files of the broker; dotted lines are its ends](soak.png)
"""
    )


def draw(summary: Summary, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    times = [sample.at_s / 60 for sample in summary.samples]
    figure, panels = plt.subplots(2, 1, figsize=(9, 5), sharex=True)
    panels[0].plot(
        times, [sample.rss_bytes / MB for sample in summary.samples], ".", markersize=2, color="#2a6f97"
    )
    panels[0].set_ylabel("memory (RSS), MB")
    panels[1].plot(times, [sample.files for sample in summary.samples], ".", markersize=2, color="#2a6f97")
    panels[1].set_ylabel("open files")
    panels[1].set_xlabel("minutes")
    for axes in panels:
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        for end_s in summary.ends_s:
            axes.axvline(end_s / 60, color="#adb5bd", linewidth=0.8, linestyle=":")
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
