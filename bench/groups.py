"""How long many members need to come together in one group, and many groups to begin: both group protocols.

Members are raw connections of this process (`group_members`), the same for both brokers. *Join* is from the first
request until every member has its assignment in one generation or epoch; then one more member comes, and all the others
learn it by their heartbeats, as in life. A broker that leaves one member out has no reading.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from bench.group_members import (
    FIND_COORDINATOR,
    HEARTBEAT_S,
    PATIENCE_S,
    ClassicMember,
    Connection,
    ConsumerMember,
    Roll,
    evenly_dealt,
    in_one_generation,
)
from bench.measure import Meter, Reading, latency_readings
from bench.server import HOST, Server
from bench.topics import fresh_topic
from moldau.runtime.ports import Runtime
from moldau.runtime.real import run

NOTE = """\
Members are raw connections with a heartbeat every 0.5 s. *Join* ends when every member has its assignment in one
generation or epoch; *one more* comes to a group at rest, and the others learn it by their heartbeats. On both brokers
`group.initial.rebalance.delay.ms` is 200, or 0 for the groups of one member, of which 50 are busy at a time; all else
is Kafka's default, by which a consumer group (KIP-848) is assigned at most once a second.
"""
INITIAL_DELAY = "group.initial.rebalance.delay.ms"
GATHERING = {INITIAL_DELAY: 200}
"""Long enough that no member comes too late for the first generation, short enough not to be all that is measured."""
AT_ONCE = {INITIAL_DELAY: 0}
BEATS_EACH = 4
IN_FLIGHT = 50
FILES_BESIDE_CONNECTIONS = 200
SHOWN = ("p50", "p99")
POLL_S = 0.02

Member = ClassicMember | ConsumerMember
T = TypeVar("T")
_numbers = itertools.count(1)


def classic_group(server: Server, members: int) -> Iterator[Reading]:
    yield from _one_group(server, members, "classic")


def consumer_group(server: Server, members: int) -> Iterator[Reading]:
    yield from _one_group(server, members, "KIP-848")


def _one_group(server: Server, count: int, kind: str) -> Iterator[Reading]:
    """Of as many members as the topic has partitions, but for one, which comes last."""
    group, partitions = f"bench-group-{next(_numbers)}", count + 1
    with fresh_topic(server, partitions) as topic:
        roll = Roll(in_one_generation if kind == "classic" else evenly_dealt(partitions))

        def member(number: int, connection: Connection) -> Member:
            if kind == "classic":
                return ClassicMember(connection, group, topic, partitions, roll)
            return ConsumerMember(connection, group, topic, f"member-{number:05}", roll)

        yield from run(lambda runtime: _come_together(runtime, server, group, partitions, member, roll, kind))


async def _come_together(
    runtime: Runtime,
    server: Server,
    group: str,
    count: int,
    make_member: Callable[[int, Connection], Member],
    roll: Roll,
    kind: str,
) -> list[Reading]:
    connections = await _connect(runtime, server, count, group)
    members = [make_member(number, connection) for number, connection in enumerate(connections)]
    *first, last = members
    async with asyncio.timeout(PATIENCE_S), _Running() as running:
        with Meter(server) as joining:
            done = roll.complete(len(first))
            for member in first:
                running.start(member.run())
            await running.until(done)
        with Meter(server) as growing:
            done = roll.complete(len(members))
            running.start(last.run())
            await running.until(done)
        with Meter(server) as steady:
            beaten = await running.until(asyncio.ensure_future(_rest(members)))
    await _leave(runtime, server, members)
    joined, grown = f"{len(first):,} members join, {kind}", f"one more joins {len(first):,}, {kind}"
    return [
        Reading(joined, joining.wall_s, "s"),
        Reading(f"{joined}, broker CPU", joining.cpu_s, "s"),
        Reading(grown, growing.wall_s, "s"),
        Reading(f"{grown}, broker CPU", growing.cpu_s, "s"),
        Reading(f"heartbeat in a group of {len(members):,}, {kind}", steady.cpu_s * 1e6 / beaten, "us"),
    ]


def many_groups(server: Server, groups: int) -> Iterator[Reading]:
    """Each with one member, which joins and commits once; so many of them are busy at a time."""
    with fresh_topic(server) as topic:
        yield from run(lambda runtime: _join_and_commit(runtime, server, topic, groups))


async def _join_and_commit(runtime: Runtime, server: Server, topic: str, count: int) -> list[Reading]:
    prefix = f"bench-group-{next(_numbers)}"
    connections = await _connect(runtime, server, count, prefix)
    members = [
        ClassicMember(connection, f"{prefix}-{number}", topic, 1, Roll(in_one_generation))
        for number, connection in enumerate(connections)
    ]
    readings = []
    async with asyncio.timeout(PATIENCE_S):
        readings += await _each(server, members, lambda member: member.join(), f"join of {count:,} groups")
        readings += await _each(
            server, members, lambda member: member.commit(1), f"commit of {count:,} groups"
        )
    await _leave(runtime, server, members)
    return readings


async def _each(
    server: Server,
    members: Sequence[ClassicMember],
    work: Callable[[ClassicMember], Awaitable[None]],
    what: str,
) -> list[Reading]:
    latencies: list[float] = []
    waiting = iter(members)

    async def worker() -> None:
        for member in waiting:
            began = time.perf_counter()
            await work(member)
            latencies.append(time.perf_counter() - began)

    with Meter(server) as meter:
        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return [
        Reading(what, len(members) / meter.wall_s, "1/s", more_is_better=True),
        *(one for one in latency_readings(what, latencies) if one.name.endswith(SHOWN)),
        Reading(f"{what}, broker CPU", meter.cpu_s * 1e6 / len(members), "us"),
    ]


async def _rest(members: Sequence[Member]) -> int:
    """Until the members have sent so many heartbeats on average; how many that were."""

    def count() -> int:
        return sum(member.heartbeats for member in members)

    before = count()
    while count() - before < BEATS_EACH * len(members):
        await asyncio.sleep(HEARTBEAT_S)
    return count() - before


class _Running:
    """Members that run until the block ends. What one of them fails with ends whatever is waited for."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, member: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(member))

    async def until(self, done: asyncio.Future[T]) -> T:
        await asyncio.wait([done, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                done.cancel()
                task.result()
        return done.result()

    async def __aenter__(self) -> _Running:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _connect(runtime: Runtime, server: Server, count: int, group: str) -> list[Connection]:
    """Connections to a broker that coordinates the group already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + FILES_BESIDE_CONNECTIONS), hard))
    connections = [await Connection.open(runtime, HOST, server.port) for _ in range(count)]
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await connections[0].ask(FIND_COORDINATOR, key_type=0, coordinator_keys=(group,))
            if not answer.coordinators[0].error_code:
                return connections
            await asyncio.sleep(POLL_S)


async def _leave(runtime: Runtime, server: Server, members: Sequence[Member]) -> None:
    """So that the next run finds a broker with nothing to do."""
    connection = await Connection.open(runtime, HOST, server.port)
    for member in members:
        member.connection.close()
        await member.leave(connection)
    connection.close()
