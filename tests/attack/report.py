"""The table: a line for each attack as soon as it is over, and what is over the limits at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .attack import size_text

NAME_WIDTH = 72
ANSWER_WIDTH = 34
HEAD = (
    f"{'attack':{NAME_WIDTH}} {'sent':>8}  {'answer':{ANSWER_WIDTH}} {'worst':>10} {'no core':>8} {'p99':>9} "
    f"{'peak':>9} {'after':>9}  serves"
)
UNITS = f"{'':{NAME_WIDTH}} {'':>8}  {'':{ANSWER_WIDTH}} {'ms':>10} {'ms':>8} {'ms':>9} {'+MB':>9} {'+MB':>9}"


@dataclass(frozen=True, slots=True)
class Limits:
    wait_ms: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Row:
    """One attack on one broker; memory is above what the broker takes when it is idle."""

    name: str
    sent_bytes: int
    answer: str
    worst_ms: float
    p99_ms: float
    peak_mb: float
    after_mb: float
    serves: str
    starved_ms: float = 0.0
    """Of the worst wait: the broker had work and no core, which is the machine's doing."""
    complaint: str = ""
    """What else should not be so."""
    is_late: bool = False
    """The attack was cut off, or the pinger still waited: the worst wait is longer than it says."""
    seconds: float = 0.0

    def complaints(self, limits: Limits) -> list[str]:
        """What is over the limits."""
        found = []
        if self.worst_ms > limits.wait_ms:
            found.append("wait")
        if self.peak_mb > limits.memory_mb or self.after_mb > limits.memory_mb:
            found.append("memory")
        if self.serves != "yes":
            found.append("serves")
        if self.complaint:
            found.append(self.complaint)
        return found


def line(row: Row, limits: Limits) -> str:
    over = row.complaints(limits)
    wait_mark = "!" if "wait" in over else " "
    memory_mark = "!" if "memory" in over else " "
    longer = ">" if row.is_late else ""
    return (
        f"{_cut(row.name, NAME_WIDTH):{NAME_WIDTH}} {size_text(row.sent_bytes):>8}  "
        f"{_cut(row.answer, ANSWER_WIDTH):{ANSWER_WIDTH}} "
        f"{longer + format(row.worst_ms, ',.1f'):>9}{wait_mark} {row.starved_ms:>8,.1f} {row.p99_ms:>9,.1f} "
        f"{row.peak_mb:>+8,.0f}{memory_mark} {row.after_mb:>+9,.0f}  {row.serves}"
        + (f"  ! {row.complaint}" if row.complaint else "")
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def summary(rows: Sequence[Row], limits: Limits) -> str:
    over = [row for row in rows if row.complaints(limits)]
    text = [
        f"{len(rows)} attacks, {len(over)} over the limits ({limits.wait_ms:g} ms, {limits.memory_mb:g} MB)"
    ]
    if over:
        longest = max(over, key=lambda row: row.worst_ms)
        largest = max(over, key=lambda row: row.peak_mb)
        text.append(f"longest wait: {longest.worst_ms:,.0f} ms, {longest.name}")
        text.append(f"most memory: {largest.peak_mb:+,.0f} MB, {largest.name}")
    return "\n".join(text)


def beside(moldau: Iterable[Row], kafka: Iterable[Row]) -> str:
    """Both brokers' figures in one table, for attacks that both were given."""
    others = {row.name: row for row in kafka}
    lines = [f"{'attack':{NAME_WIDTH}} {'Moldau ms':>11} {'+MB':>7} {'Kafka ms':>11} {'+MB':>7}"]
    for row in moldau:
        other = others.get(row.name)
        theirs = f"{_wait(other):>11} {other.peak_mb:>+7,.0f}" if other else f"{'-':>11} {'-':>7}"
        lines.append(
            f"{_cut(row.name, NAME_WIDTH):{NAME_WIDTH}} {_wait(row):>11} {row.peak_mb:>+7,.0f} {theirs}"
        )
    return "\n".join(lines)


def _wait(row: Row) -> str:
    return (">" if row.is_late else "") + format(row.worst_ms, ",.1f")


def write_json(path: Path, rows: Mapping[str, Sequence[Row]]) -> None:
    path.write_text(
        json.dumps({name: [asdict(row) for row in some] for name, some in rows.items()}, indent=1)
    )
