"""`python -m foreign [SUITE ...] [--on kafka] [--brokers 3] [--part ci] [--run PATTERN]`: what `make foreign` calls.

It ends with 0 where every suite did as its lists say, and with 1 otherwise, also where one cannot be fetched.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from bench.server import StartFailed
from moldau.runtime.real.java import Unavailable as KafkaUnavailable

from .franz_go import FranzGo
from .kafka_python import KafkaPython
from .librdkafka import Librdkafka
from .lists import BadList
from .node_rdkafka import NodeRdkafka
from .processes import CommandFailed, Unavailable
from .runner import Choice, run_suite
from .suite import Suite
from .summary import Summary, table

SUITES: dict[str, type[Suite]] = {
    suite.name: suite for suite in (FranzGo, Librdkafka, KafkaPython, NodeRdkafka)
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m foreign", description="Run foreign test suites.")
    parser.add_argument(
        "suite", nargs="*", metavar="SUITE", help=f"one of {', '.join(SUITES)}; all if not given"
    )
    parser.add_argument("--on", choices=["moldau", "kafka"], default="moldau", help="the broker to run on")
    parser.add_argument(
        "--brokers", type=int, choices=[1, 3], default=1, help="three: topics with three copies"
    )
    parser.add_argument("--part", choices=["all", "ci"], default="all", help="ci: what ends in 15 minutes")
    parser.add_argument("--run", default="*", metavar="PATTERN", help="only the runs with such a name")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.suite if name not in SUITES]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    choice = Choice(
        on_kafka=options.on == "kafka",
        brokers=options.brokers,
        is_ci=options.part == "ci",
        pattern=options.run,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as with Ctrl-C, what was started is ended
    chosen = options.suite or [name for name in SUITES if SUITES[name].is_in_ci or not choice.is_ci]
    summaries = [_run(SUITES[name](), choice) for name in chosen]
    print(table(filter(None, summaries)))
    return 0 if all(summary is not None and summary.is_good for summary in summaries) else 1


def _run(suite: Suite, choice: Choice) -> Summary | None:
    try:
        return run_suite(suite, choice)
    except (Unavailable, KafkaUnavailable, CommandFailed, StartFailed, BadList) as problem:
        print(f"{suite.name}: COULD NOT RUN: {problem}", flush=True)
        return None


if __name__ == "__main__":
    sys.exit(main())
