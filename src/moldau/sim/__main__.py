"""`python -m moldau.sim --seed S`: replay a simulated run exactly, and say what it found."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import nullcontext

from moldau.sim import group_workload, workload
from moldau.sim.group_plants import GROUP_PLANTS
from moldau.sim.plants import PLANTS
from moldau.sim.workload import Outcome

WORKLOADS = {
    "log": (workload.simulate, workload.SECONDS),
    "groups": (group_workload.simulate_groups, group_workload.SECONDS),
}
EVERY_PLANT = PLANTS | GROUP_PLANTS


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m moldau.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument(
        "--workload", choices=sorted(WORKLOADS), default="log", help="what clients do (default: log)"
    )
    parser.add_argument("--seconds", type=float, help="virtual seconds of trouble in each")
    parser.add_argument("--trace", action="store_true", help="print the last events of each run")
    parser.add_argument("--plant", choices=sorted(EVERY_PLANT), help="put a bug into the broker, to be found")
    parser.add_argument("--list-plants", action="store_true", help="the bugs that can be planted")
    options = parser.parse_args(arguments)
    if options.list_plants:
        for name, plant in EVERY_PLANT.items():
            say(f"{name:32} {(plant.__doc__ or '').splitlines()[0]}")
        return 0
    # What brokers and clients log is for people who look for something; the trace says what happened.
    logging.disable(logging.CRITICAL)
    is_clean = True
    for seed in range(options.seed, options.seed + options.runs):
        with EVERY_PLANT[options.plant]() if options.plant else nullcontext():
            run, seconds = WORKLOADS[options.workload]
            outcome = run(seed, options.seconds or seconds)
        report(outcome, trace=options.trace)
        is_clean = is_clean and not outcome.violations
    return 0 if is_clean else 1


def report(outcome: Outcome, *, trace: bool) -> None:
    if trace:
        for line in outcome.trace:
            say(line)
    say(f"seed {outcome.seed}: {outcome.virtual_s:.3f} virtual seconds, {outcome.steps} steps")
    say("  " + ", ".join(f"{what} {count}" for what, count in sorted(outcome.counts.items())))
    say(f"  digest {outcome.digest}")
    for violation in outcome.violations:
        say(f"  VIOLATION seed {outcome.seed} {violation}")
    say(f"  {'VIOLATED' if outcome.violations else 'ok'}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
