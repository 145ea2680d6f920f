"""`python -m bench`: measure Moldau and Apache Kafka side by side and write docs/benchmarks.md.

python -m bench --quick      a few minutes, small amounts
python -m bench              the whole of it, with logs up to 10 GB: about half an hour, 25 GB of disk
python -m bench --only Groups    one section alone; the page keeps the figures of the others
python -m bench --profile LOAD   where the broker spends its time
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench.apache_kafka import ToolFailed, distribution
from bench.measure import ALONE
from bench.profiling import LOADS, print_profile
from bench.server import StartFailed
from moldau.runtime.real.java import Unavailable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small amounts: a few minutes")
    parser.add_argument(
        "--docs", type=Path, help="where benchmarks.md and the plots go: docs, or with --quick nowhere"
    )
    parser.add_argument("--json", type=Path, help="also keep every reading in this file")
    parser.add_argument("--only", choices=ALONE, help="measure one section, and put it into the page")
    parser.add_argument(
        "--profile", choices=LOADS, help="print a profile of the broker under this load instead"
    )
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        print(
            "The benchmarks read /proc and the kernel's CPU clocks: they run on Linux only.", file=sys.stderr
        )
        return 1
    try:
        if options.profile:
            print_profile(options.profile)
        else:
            distribution()
            docs = options.docs or (None if options.quick else Path("docs"))
            return run(options.quick, docs, options.json, options.only)
    except (Unavailable, StartFailed, ToolFailed) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def run(quick: bool, docs: Path | None, kept: Path | None, only: str | None) -> int:
    from bench.peers.page import section_of
    from bench.peers.page import with_section as with_peers
    from bench.plots import draw
    from bench.report import markdown, with_budgets, with_section
    from bench.runner import FULL, QUICK, measure

    plan = QUICK if quick else FULL
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {what}", file=sys.stderr, flush=True)

    results = measure(plan, say, only)
    if kept is not None:
        kept.write_text(json.dumps(results.as_dict(), indent=1))
    if docs is None:
        print(markdown(results, plan, []) if only is None else with_section("", only, results))
        print(with_budgets("", results, only))
        return 1 if results.failures else 0
    page, budgets = docs / "benchmarks.md", docs / "performance.md"
    if only is None:
        text = markdown(results, plan, draw(results, docs))
        peers = section_of(page.read_text()) if page.exists() else None
        page.write_text(text if peers is None else with_peers(text, peers))
    else:
        page.write_text(with_section(page.read_text(), only, results))
    before = budgets.read_text() if budgets.exists() else ""
    budgets.write_text(with_budgets(before, results, only))
    say(f"wrote {only or 'everything'} into {page}, the budgets into {budgets}")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
