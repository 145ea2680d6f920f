"""`python -m bench.spark`: our source and sink beside Spark's own connector; writes docs/benchmarks-spark.md.

python -m bench.spark                   the whole of it: about 25 minutes on two quiet cores
python -m bench.spark --quick           small amounts, printed only
python -m bench.spark --only Latency    one section; the page keeps the figures of the others
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.server import StartFailed
from bench.spark.plan import FULL, QUICK, SECTIONS, Plan
from bench.spark.results import Results
from moldau.runtime.real.java import Unavailable

PAGE = "benchmarks-spark.md"
GOALS_PAGE = "performance.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="small amounts: a minute or two")
    parser.add_argument(
        "--docs", type=Path, help=f"where {PAGE} and the plots go: docs, or with --quick nowhere"
    )
    parser.add_argument("--json", type=Path, help="also keep every reading in this file")
    parser.add_argument("--only", choices=SECTIONS, help="measure one section, and put it into the page")
    options = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        print(
            "The benchmarks read /proc and the kernel's CPU clocks: they run on Linux only.", file=sys.stderr
        )
        return 1
    plan = QUICK if options.quick else FULL
    docs = options.docs or (None if options.quick else Path("docs"))
    try:
        return run(plan, docs, options.json, options.only)
    except (Unavailable, StartFailed) as problem:
        print(problem, file=sys.stderr)
        return 1


def run(plan: Plan, docs: Path | None, kept: Path | None, only: str | None) -> int:
    from bench.spark.runner import measure

    started = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {what}", file=sys.stderr, flush=True)

    results = measure(plan, say, only)
    if kept is not None:
        kept.write_text(results.as_json())
    text = write(results, plan, docs, only)
    if docs is None:
        print(text)
    else:
        say(f"wrote {docs / PAGE}")
    return 1 if results.has_failures else 0


def write(results: Results, plan: Plan, docs: Path | None, only: str | None) -> str:
    """The page, with its plots; without a folder for it, as text only."""
    from bench.spark.plots import draw
    from bench.spark.report import markdown, with_goals, with_section

    plots = {}
    for name, section in results.sections.items():
        if docs is not None and (file := draw(name, section, docs)) is not None:
            plots[name] = file
    page = None if docs is None else docs / PAGE
    if only is not None and page is not None and page.exists():
        text = with_section(page.read_text(), only, results.sections[only], plan, plots.get(only))
    else:
        text = markdown(results, plan, plots)
    if page is not None:
        page.write_text(text)
        goals = page.with_name(GOALS_PAGE)
        goals.write_text(with_goals(goals.read_text() if goals.exists() else "", results))
    return text


if __name__ == "__main__":
    sys.exit(main())
