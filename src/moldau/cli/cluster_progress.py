"""How far the move of partitions has come: by bytes where the brokers tell them, else by partitions.

On a terminal it is a bar; elsewhere a line now and then, on stderr. The move is the cluster's: whoever stops watching
does not stop it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import BrokerView, ClusterClient, Moving
from moldau.cli.errors import CliError
from moldau.cli.output import console, count_of, human_bytes, human_ms, note, wants_drawing
from moldau.cli.partition_health import listed

PAUSE_S = 0.25
LINE_INTERVAL_S = 10.0
PACE_S = 10.0


class Step(NamedTuple):
    """What is done of what."""

    partitions: int
    of_partitions: int
    bytes: int
    of_bytes: int
    waits_for: tuple[int, ...] = ()
    """Brokers that get a replica, and do not run."""
    bytes_per_s: float = 0.0
    """Of late; 0 where it is not known, or nothing comes."""

    @property
    def left_s(self) -> float | None:
        """How long it takes, if it goes on like this."""
        left_bytes = self.of_bytes - self.bytes
        return left_bytes / self.bytes_per_s if left_bytes > 0 and self.bytes_per_s > 0 else None

    @property
    def text(self) -> str:
        text = f"{self.partitions} of {count_of(self.of_partitions, 'partition')}"
        if self.of_bytes:
            text += f", {human_bytes(self.bytes)} of {human_bytes(self.of_bytes)}"
        if self.left_s is not None:
            text += f", {human_bytes(self.bytes_per_s)}/s, about {human_ms(self.left_s * 1000)} left"
        return text + (f", waiting for {listed(self.waits_for)}" if self.waits_for else "")


def follow(client: ClusterClient, places: Collection[TopicPartition]) -> None:
    """Until none of these is being moved."""
    meter, pace = Meter(client, places), Pace()
    with shown(len(places)) as show:
        while True:
            step = meter.step()
            step = step._replace(bytes_per_s=pace.after(step.bytes, time.monotonic()))
            show(step)
            if step.partitions == step.of_partitions:
                return
            time.sleep(PAUSE_S)


class Pace:
    """How fast bytes have come over the last seconds."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, int]] = deque()

    def after(self, bytes_: int, now_s: float) -> float:
        past = self._past
        past.append((now_s, bytes_))
        while len(past) > 2 and now_s - past[1][0] >= PACE_S:
            past.popleft()
        began_s, before = past[0]
        return max(0, bytes_ - before) / (now_s - began_s) if now_s > began_s else 0.0


class Meter:
    """Compares the new replicas with their leaders."""

    def __init__(self, client: ClusterClient, places: Collection[TopicPartition]) -> None:
        self._client = client
        self._places = places
        self._goals: dict[tuple[TopicPartition, int], int] = {}
        """Bytes that each new replica will have, as soon as its leader has told them."""
        self._done: dict[tuple[TopicPartition, int], int] = {}

    def step(self) -> Step:
        moving = {place: one for place, one in self._client.moving().items() if place in self._places}
        brokers = {broker.id: broker for broker in self._client.cluster().brokers}
        self._measure(moving, {number: one for number, one in brokers.items() if not one.is_fenced})
        for replica, goal in self._goals.items():
            if replica[0] not in moving:
                self._done[replica] = goal
        adding = sorted({number for one in moving.values() for number in one.adding})
        waits_for = [number for number in adding if number not in brokers or brokers[number].is_fenced]
        return Step(
            len(self._places) - len(moving),
            len(self._places),
            sum(self._done.values()),
            sum(self._goals.values()),
            tuple(waits_for),
        )

    def _measure(self, moving: dict[TopicPartition, Moving], live: dict[int, BrokerView]) -> None:
        wanted = {number for one in moving.values() for number in one.replicas if number in live}
        try:
            sizes = {number: self._client.log_sizes(live[number]) for number in sorted(wanted)}
        except CliError:
            return  # a broker has just gone: the next time will tell
        for place, one in moving.items():
            size = max((sizes[number].get(place, 0) for number in one.replicas if number in sizes), default=0)
            for number in one.adding:
                self._goals[place, number] = max(size, self._goals.get((place, number), 0))
                self._done[place, number] = sizes.get(number, {}).get(place, 0)


@contextmanager
def shown(partitions: int) -> Iterator[Any]:
    """A function that shows a step."""
    if not wants_drawing(sys.stderr):
        last_s = time.monotonic()

        def tell(step: Step) -> None:
            nonlocal last_s
            if time.monotonic() - last_s >= LINE_INTERVAL_S:
                last_s = time.monotonic()
                note(f"moved {step.text}")

        yield tell
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("moving"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(err=True), transient=True) as progress:
        bar = progress.add_task(count_of(partitions, "partition"), total=1.0)

        def draw(step: Step) -> None:
            part = step.bytes / step.of_bytes if step.of_bytes else step.partitions / step.of_partitions
            progress.update(bar, completed=min(1.0, part), description=step.text)

        yield draw
