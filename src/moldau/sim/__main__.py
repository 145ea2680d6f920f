"""`python -m moldau.sim --seed S`: replay a simulated run exactly, and say what it found."""

from __future__ import annotations

import argparse
import logging
import sys

from moldau.sim.stage import Outcome
from moldau.sim.workloads import WORKLOADS

ALL = "all"


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.list_plants:
        list_plants()
        return 0
    # What brokers and clients log is for people who look for something; the trace says what happened.
    logging.disable(logging.CRITICAL)
    is_clean = True
    names = chosen(options)
    if not names:
        say(f"--workload {options.workload} does not look for {options.plant}: see --list-plants")
        return 2
    for seed in range(options.seed, options.seed + options.runs):
        for name in names:
            workload = WORKLOADS[name]
            with workload.plants.planted(options.plant):
                outcome = workload.simulate(seed, options.seconds or workload.seconds)
            report(name, outcome, trace=options.trace)
            if outcome.violations:
                is_clean = False
                say(f"  replay: {replay_command(name, seed, options)}")
    return 0 if is_clean else 1


def replay_command(name: str, seed: int, options: argparse.Namespace) -> str:
    command = f"python -m moldau.sim --workload {name} --seed {seed}"
    if options.seconds:
        command += f" --seconds {options.seconds:g}"
    if options.plant:
        command += f" --plant {options.plant}"
    return command


def parse(arguments: list[str]) -> argparse.Namespace:
    every_plant = sorted(name for workload in WORKLOADS.values() for name in workload.plants)
    parser = argparse.ArgumentParser(prog="python -m moldau.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument(
        "--workload",
        choices=[*WORKLOADS, ALL],
        help="what clients do (default: log, or the one that finds the planted bug)",
    )
    parser.add_argument("--seconds", type=float, help="virtual seconds of trouble in each")
    parser.add_argument("--trace", action="store_true", help="print the last events of each run")
    parser.add_argument("--plant", choices=every_plant, help="put a bug into the broker, to be found")
    parser.add_argument(
        "--list-plants",
        action="store_true",
        help="the bugs that can be planted, by the workload that finds them",
    )
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[str]:
    """The workloads to run: with a planted bug, only those that know it."""
    names = [*WORKLOADS] if options.workload == ALL else [options.workload or "log"]
    if options.plant is None:
        return names
    finders = [name for name, workload in WORKLOADS.items() if options.plant in workload.plants]
    return finders if options.workload is None else [name for name in names if name in finders]


def list_plants() -> None:
    for name, workload in WORKLOADS.items():
        say(f"--workload {name}")
        for plant_name, plant in workload.plants.items():
            say(f"  {plant_name:40} promise {plant.promise}  {plant.what}")


def report(name: str, outcome: Outcome, *, trace: bool) -> None:
    if trace:
        for line in outcome.trace:
            say(line)
    say(f"{name}, seed {outcome.seed}: {outcome.virtual_s:.3f} virtual seconds, {outcome.steps} steps")
    say("  " + ", ".join(f"{what} {count}" for what, count in sorted(outcome.counts.items())))
    say(f"  digest {outcome.digest}")
    for violation in outcome.violations:
        say(f"  VIOLATION --workload {name} --seed {outcome.seed} {violation}")
    say(f"  {'VIOLATED' if outcome.violations else 'ok'}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
