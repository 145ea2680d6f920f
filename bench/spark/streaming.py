"""Micro-batches: how old a result is, what an idle query takes, and what a batch costs as partitions grow.

For latency a query copies values from one topic to another. Its sink is the connector's, whichever source is measured,
so that the sources alone differ; once more with ours on both ends. Triggers are Spark's default: the next batch begins
when there is something to read.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final

from bench.measure import WorkNotDone, percentiles
from bench.spark.latency import Probe, probing, stop
from bench.spark.plan import Plan
from bench.spark.reading import OF_CPU
from bench.spark.results import Found, Section
from bench.spark.sides import ALL, DEFAULT, Side, in_turn
from bench.spark.topics import filled
from bench.spark.world import Cpu, World, between
from bench.topics import fresh_topic

Say = Callable[[str], None]

RATE: Final = 200
LATENCY: Final = "latency"
BOTH: Final = Side("Moldau, source and sink", "moldau")
OF_SOURCES: Final = (DEFAULT, ALL)
OF_LATENCY: Final = (DEFAULT, ALL, BOTH)
PACED: Final = f"{RATE} records/s"
SINGLE: Final = "one record into an idle query"
LONG_IDLE: Final = "the same, after {:.0f} s without any"
IDLE_CPU: Final = "idle CPU"
BATCH_TIME: Final = "time of a batch"
BATCH_CPU: Final = "CPU of a batch"
NO_QUERY: Final = "no query"
GAP_S: Final = (0.5, 1.8)
"""Between single records: not in step with anything that ticks."""
WARM_BATCHES: Final = 6
POLL_S: Final = 0.1
BATCHES_TIMEOUT_S: Final = 240.0


@contextlib.contextmanager
def copying(world: World, side: Side, number: int) -> Iterator[Probe]:
    """A query that copies a topic's values to another one, and runs."""
    with fresh_topic(world.server) as given, fresh_topic(world.server) as result:
        sink = "moldau" if side is BOTH else "kafka"
        frame = side.read_stream(world.spark, world.bootstrap, given, startingOffsets="latest")
        query = (
            frame.select("value")
            .writeStream.format(sink)
            .option("kafka.bootstrap.servers", world.bootstrap)
            .option("topic", result)
            .option("checkpointLocation", str(world.folder / f"checkpoint-{given}-{number}"))
            .start()
        )
        try:
            with probing(world.bootstrap, given, result) as probe:
                probe.wait_until_it_runs()
                yield probe
            if query.exception() is not None:
                raise WorkNotDone(f"{side.name}: {query.exception()}")
        finally:
            stop(query)


def latency(world: World, plan: Plan, section: Section, say: Say) -> None:
    draw = random.Random(1)
    for number in range(plan.latency_runs):
        for side in in_turn(OF_LATENCY, number):
            say(f"latency, {side.name}, run {number + 1} of {plan.latency_runs}")
            with copying(world, side, number) as probe:
                probe.paced(RATE, 1)  # the first batches after a start are slow
                _add_ages(section, PACED, side, probe.paced(RATE, plan.latency_s))
                singles = []
                for _ in range(plan.single_records):
                    time.sleep(draw.uniform(*GAP_S))
                    singles.append(probe.one())
                _add_ages(section, SINGLE, side, singles)
    if plan.long_idle_s:
        _after_a_long_pause(world, plan, section, say)


def _after_a_long_pause(world: World, plan: Plan, section: Section, say: Say) -> None:
    """The queries lie idle side by side, and are asked one after the other."""
    say(f"latency after {plan.long_idle_s:g} s without records")
    with contextlib.ExitStack() as stack:
        probes = {side: stack.enter_context(copying(world, side, 100)) for side in OF_LATENCY}
        time.sleep(plan.long_idle_s)
        for side, probe in probes.items():
            found = Found(f"{LATENCY}, first", probe.one() * 1000, "ms")
            section.add(LONG_IDLE.format(plan.long_idle_s), side.name, [found])


def _add_ages(section: Section, case: str, side: Side, ages_s: list[float]) -> None:
    found = percentiles(ages_s) if len(ages_s) > 100 else {"p50": median(ages_s)}
    found["largest"] = max(ages_s)
    section.add(
        case, side.name, [Found(f"{LATENCY}, {name}", age * 1000, "ms") for name, age in found.items()]
    )


def idle(world: World, plan: Plan, section: Section, say: Say) -> None:
    for number in range(plan.latency_runs):
        say(f"idle, no query, run {number + 1} of {plan.latency_runs}")
        section.add("idle", NO_QUERY, _idle_cpu(world, plan.idle_s))
        for side in in_turn(OF_SOURCES, number):
            say(f"idle, {side.name}, run {number + 1} of {plan.latency_runs}")
            with copying(world, side, 200 + number):
                time.sleep(1)
                section.add("idle", side.name, _idle_cpu(world, plan.idle_s))


def _idle_cpu(world: World, duration_s: float) -> Iterator[Found]:
    _, taken = world.taken(lambda: time.sleep(duration_s))
    yield from _cpu_found(IDLE_CPU, taken.cpu.over(taken.seconds), "ms/s")


def _cpu_found(metric: str, cpu: Cpu, unit: str) -> Iterator[Found]:
    yield Found(metric, cpu.total * 1000, unit)
    for name, part in OF_CPU.items():
        yield Found(f"{metric}: {name}", getattr(cpu, part) * 1000, unit)


def partitions(world: World, plan: Plan, section: Section, say: Say) -> None:
    """Batches with one record of each partition: what the batch itself costs, not its records."""
    for count in plan.partition_counts:
        with filled(world.server, [[b"one"]], plan.batches * count, "none", count) as topic:
            for number in range(min(2, plan.runs)):
                for side in in_turn(OF_SOURCES, number):
                    say(f"{count} partitions, {side.name}")
                    checkpoint = str(world.folder / f"checkpoint-{topic.name}-{side.format}-{number}")
                    case = "1 partition" if count == 1 else f"{count} partitions"
                    section.add(case, side.name, _batches(world, side, topic.name, count, plan, checkpoint))


def _batches(
    world: World, side: Side, topic: str, count: int, plan: Plan, checkpoint: str
) -> Iterator[Found]:
    frame = side.read_stream(
        world.spark, world.bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(count)
    )
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        first = _wait_for_batch(query, min(WARM_BATCHES, plan.batches // 2))
        before = world.look()
        last = _wait_for_batch(query, plan.batches - 2)  # the last one is followed by the query's end
        cpu = between(before, world.look())
        if not query.awaitTermination(BATCHES_TIMEOUT_S):
            raise WorkNotDone(f"{side.name}: {count} partitions were not read in {BATCHES_TIMEOUT_S:g} s")
    finally:
        stop(query)
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    if sum(each["numInputRows"] for each in progress) != plan.batches * count:
        raise WorkNotDone(f"{side.name}: not {plan.batches} batches of {count} rows")
    times_ms = [each["durationMs"]["triggerExecution"] for each in progress if each["batchId"] > first]
    yield Found(BATCH_TIME, median(times_ms), "ms")
    yield from _cpu_found(BATCH_CPU, cpu.over(max(1, last - first)), "ms")


def _wait_for_batch(query: Any, number: int) -> int:
    """Until that batch has ended; the last one that has."""
    deadline_s = time.monotonic() + BATCHES_TIMEOUT_S
    while time.monotonic() < deadline_s:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= number:
            return int(progress["batchId"])
        if query.exception() is not None:
            raise WorkNotDone(str(query.exception()))
        time.sleep(POLL_S)
    raise WorkNotDone(f"batch {number} did not end in {BATCHES_TIMEOUT_S:g} s")
