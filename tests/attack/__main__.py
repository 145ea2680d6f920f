"""`python -m attack [--only PATTERN] [--part quick] [--kafka]`: what `make attack` calls.

Prints a table with a row for each attack and ends with 1 where one is over the limits: an honest client waited too long
for a small answer, the broker took too much memory above idle, or it serves no more.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.server import StartFailed
from moldau.runtime.real.java import Unavailable

from .attack import Attack
from .catalogue import all_attacks
from .report import HEAD, UNITS, Limits, Row, beside, line, summary, write_json
from .runner import Runner, names_of

WAIT_MS = 50.0
MEMORY_MB = 300.0
SECONDS = 60.0
SECONDS_QUICK = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    attacks = [attack for attack in all_attacks() if _is_chosen(attack, options)]
    if options.list:
        print("\n".join(names_of(attacks)))
        return 0
    limits = Limits(options.limit_ms, options.limit_mb)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as with Ctrl-C, what was started is ended
    rows: dict[str, list[Row]] = {}
    try:
        for on_kafka in [options.on == "kafka"] + [True] * (options.kafka and options.on != "kafka"):
            _run(attacks, options, limits, on_kafka, rows)
    except (Unavailable, StartFailed) as problem:
        print(f"COULD NOT RUN: {problem}", flush=True)
        return 1
    if len(rows) == 2:
        print("\n" + beside(*rows.values()))
    first = next(iter(rows.values()))
    return 1 if any(row.complaints(limits) for row in first) else 0


def _run(
    attacks: Sequence[Attack],
    options: argparse.Namespace,
    limits: Limits,
    on_kafka: bool,
    rows: dict[str, list[Row]],
) -> None:
    """Print and keep each row as it comes: a run that is ended half-way has told what it knows."""
    name = "Apache Kafka" if on_kafka else "Moldau"
    rows[name] = []

    def tell(row: Row) -> None:
        rows[name].append(row)
        print(line(row, limits), flush=True)
        if options.json:
            write_json(options.json, rows)

    print(f"\n{name}\n{HEAD}\n{UNITS}", flush=True)
    seconds = options.seconds or (SECONDS_QUICK if options.part == "quick" else SECONDS)
    Runner(on_kafka, seconds, tell).run(attacks)
    print(f"\n{summary(rows[name], limits)}", flush=True)


def _is_chosen(attack: Attack, options: argparse.Namespace) -> bool:
    is_in_part = options.part == "all" or attack.is_quick
    return is_in_part and any(_matches(attack.name, pattern) for pattern in options.only.split("|"))


def _matches(name: str, pattern: str) -> bool:
    """A plain word is a part of the name."""
    whole = pattern if any(letter in pattern for letter in "*?[") else f"*{pattern}*"
    return fnmatch.fnmatchcase(name.lower(), whole.lower())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attack", description="Attack a broker, with a pinger beside."
    )
    parser.add_argument("--on", choices=["moldau", "kafka"], default="moldau", help="the broker to attack")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka's figures beside")
    parser.add_argument("--part", choices=["all", "quick"], default="all", help="quick: a few minutes")
    parser.add_argument(
        "--only",
        default="*",
        metavar="PATTERN",
        help="attacks with such a name, or such a part in it; several with | between",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the attacks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help=f"time for each attack (default {SECONDS:g}; quick {SECONDS_QUICK:g})",
    )
    parser.add_argument(
        "--limit-ms",
        type=float,
        default=float(os.environ.get("LIMIT_MS") or WAIT_MS),
        help="the longest wait",
    )
    parser.add_argument(
        "--limit-mb",
        type=float,
        default=float(os.environ.get("LIMIT_MB") or MEMORY_MB),
        help="the most memory",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
