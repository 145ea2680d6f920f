"""The order of the measurements: both brokers beside each other, fresh folders, warmed up, alternating.

Every piece of work runs against one broker, then the other, several times; what is reported is the median of the
runs with their spread. A broker that does not run costs nothing, and one that idles next to the measured one costs
both the same.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from bench import (
    compaction,
    fixture,
    groups,
    java_tools,
    librdkafka,
    lookup,
    prototype,
    raw_load,
    replicated,
    secure,
    starting,
)
from bench.apache_kafka import KafkaServer, ToolFailed
from bench.clusters import Cluster, KafkaCluster, MoldauCluster
from bench.measure import (
    CLUSTER,
    COMPACTION,
    FIXTURE,
    GROUPS,
    MANY_PARTITIONS,
    MB,
    SECURITY,
    Reading,
    Series,
    WorkNotDone,
    settle_machine,
)
from bench.server import CLOCK_TICKS_PER_S, MoldauServer, Server, StartFailed

Work = Callable[[Server], Iterable[Reading]]
BROKERS: tuple[type[Server], ...] = (MoldauServer, KafkaServer)
CLUSTERS: tuple[type[Cluster], ...] = (MoldauCluster, KafkaCluster)
# A deleted topic's files go at once: tens of gigabytes are written.
SETTINGS = {"log.segment.delete.delay.ms": 100}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    runs: int
    warm_up_bytes: int
    throughput_bytes: int
    requests: int
    latency_s: float
    look_up_sizes: tuple[int, ...]
    look_ups: int
    compacted_bytes: int
    group_members: int
    groups: int
    replicated_bytes: int
    fail_overs: int
    catch_up_bytes: int
    many_partitions: tuple[tuple[int, int], ...]
    """How many on how many brokers."""
    handshakes: int


@dataclass(frozen=True, slots=True)
class Piece:
    section: str
    name: str
    work: Work
    runs: int
    yardstick: Work | None = None
    """The same load for the prototype, measured before each run of the brokers."""


QUICK = Plan(
    runs=3,
    warm_up_bytes=200 * MB,
    throughput_bytes=60 * MB,
    requests=10_000,
    latency_s=2,
    look_up_sizes=(MB, 10 * MB, 100 * MB),
    look_ups=400,
    compacted_bytes=300 * MB,
    group_members=200,
    groups=500,
    replicated_bytes=60 * MB,
    fail_overs=2,
    catch_up_bytes=200 * MB,
    many_partitions=((1000, 3),),
    handshakes=300,
)
FULL = Plan(
    runs=3,
    warm_up_bytes=1000 * MB,
    throughput_bytes=200 * MB,
    requests=20_000,
    latency_s=5,
    look_up_sizes=(MB, 10 * MB, 100 * MB, 1000 * MB, 10_000 * MB),
    look_ups=1000,
    compacted_bytes=2000 * MB,
    group_members=1000,
    groups=5000,
    replicated_bytes=200 * MB,
    fail_overs=3,
    catch_up_bytes=1000 * MB,
    many_partitions=((1000, 3), (10_000, 5)),
    handshakes=1000,
)


@dataclass
class Results:
    """Sections of series, in the order in which they were measured."""

    sections: dict[str, dict[str, Series]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    others_share: float = 0.0

    def add(self, section: str, broker: str, readings: Iterable[Reading]) -> None:
        for reading in readings:
            series = self.sections.setdefault(section, {}).setdefault(
                reading.name, Series(reading.unit, reading.more_is_better)
            )
            series.values.setdefault(broker, []).append(reading.value)

    def as_dict(self) -> dict[str, dict[str, dict[str, list[float]]]]:
        return {
            section: {name: series.values for name, series in every.items()}
            for section, every in self.sections.items()
        }


def measure(plan: Plan, say: Callable[[str], None], only: str | None = None) -> Results:
    """All sections, or one of `measure.ALONE`."""
    results = Results()
    others = OtherProcesses()
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name:
        folder = Path(name)
        if only is None:
            _measure_starts(plan, results, folder, say)
        if only in (None, FIXTURE):
            _measure_fixture(plan, results, folder, say)
        if only not in (GROUPS, CLUSTER, MANY_PARTITIONS, FIXTURE, SECURITY):
            yardstick = prototype.PrototypeServer(folder / "prototype")
            with running([*_servers(folder / "warm"), yardstick]) as (*servers, _):
                _measure_running(plan, results, servers, yardstick, say, only)
        if only in (None, GROUPS):
            _measure_groups(plan, results, folder, say)
        if only in (None, SECURITY):
            _measure_security(plan, results, folder, say)
        if only in (None, CLUSTER):
            _measure_clusters(plan, results, folder, say)
        if only in (None, MANY_PARTITIONS):
            _measure_many_partitions(plan, results, folder, say)
    results.others_share = others.share()
    return results


@contextlib.contextmanager
def running(servers: list[Server]) -> Iterator[list[Server]]:
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop()


class OtherProcesses:
    """The share of the machine's cores that neither this process nor what it started has used, since it was made."""

    def __init__(self) -> None:
        self._busy_s, self._own_s = self._read()
        self._started = time.monotonic()

    def share(self) -> float:
        busy_s, own_s = self._read()
        cores_s = (time.monotonic() - self._started) * (os.cpu_count() or 1)
        return max(0.0, (busy_s - self._busy_s) - (own_s - self._own_s)) / cores_s

    @staticmethod
    def _read() -> tuple[float, float]:
        user, nice, system, _, _, irq, soft_irq, steal = map(
            int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        )
        busy_s = (user + nice + system + irq + soft_irq + steal) / CLOCK_TICKS_PER_S
        times = os.times()
        return busy_s, times.user + times.system + times.children_user + times.children_system


def _server(kind: type[Server], folder: Path, settings: Mapping[str, object] | None = None) -> Server:
    return kind(folder / kind.__name__, {**SETTINGS, **(settings or {})})


def _servers(folder: Path, settings: Mapping[str, object] | None = None) -> list[Server]:
    return [_server(kind, folder, settings) for kind in BROKERS]


def _measure_starts(plan: Plan, results: Results, folder: Path, say: Callable[[str], None]) -> None:
    for number in range(plan.runs + 1):  # the first fills the page cache with programs and is not counted
        for kind in BROKERS:
            say(f"start of {kind.name}, run {number} of {plan.runs}")
            server = _server(kind, folder / f"start-{number}")
            if isinstance(server, KafkaServer):
                server.format()
            try:
                readings = list(starting.start_up(server))
                if number == plan.runs:
                    readings += starting.idle_connections(server)
            finally:
                server.stop()
            if number:
                results.add("Start and memory", kind.name, readings)


def _measure_fixture(plan: Plan, results: Results, folder: Path, say: Callable[[str], None]) -> None:
    say(f"starts of the fixture for tests, {plan.runs} runs")
    settle_machine()
    results.add(FIXTURE, MoldauServer.name, fixture.starts(folder / "fixture", plan.runs))


def _measure_running(
    plan: Plan,
    results: Results,
    servers: list[Server],
    yardstick: Server,
    say: Callable[[str], None],
    only: str | None,
) -> None:
    for server in servers:
        say(f"warming up {server.name}")
        warm_up(server, plan.warm_up_bytes)
    for piece in pieces(plan, servers):
        if only in (None, piece.section):
            _measure_piece(piece, results, servers, yardstick, say)
    for server in servers if only is None else ():
        memory = Reading("memory after all of it", server.usage().rss_bytes / 2**20, "MiB")
        results.add("Start and memory", server.name, [memory])


def _measure_piece(
    piece: Piece,
    results: Results,
    servers: list[Server],
    yardstick: Server | None,
    say: Callable[[str], None],
) -> None:
    for number in range(piece.runs):
        if piece.yardstick is not None and yardstick is not None:
            results.add(piece.section, yardstick.name, piece.yardstick(yardstick))
        for server in servers:
            say(f"{piece.name}, {server.name}, run {number + 1} of {piece.runs}")
            settle_machine()
            try:
                results.add(piece.section, server.name, list(piece.work(server)))
            except (ToolFailed, WorkNotDone, OSError) as problem:
                say(f"{piece.name} failed on {server.name}: {problem}")
                results.failures.append(f"{piece.name} on {server.name}")


def _measure_groups(plan: Plan, results: Results, folder: Path, say: Callable[[str], None]) -> None:
    """On brokers of their own: the settings are others, and nothing else was ever in their folders."""
    for name, settings, parts in (
        ("large groups", groups.GATHERING, _large_groups(plan)),
        ("many groups", groups.AT_ONCE, _many_groups(plan)),
    ):
        with running(_servers(folder / name, settings)) as servers:
            for piece in parts:
                say(f"warming up: {piece.name}")
                _measure_piece(replace(piece, runs=1), Results(), servers, None, say)
                _measure_piece(piece, results, servers, None, say)


def _measure_security(plan: Plan, results: Results, folder: Path, say: Callable[[str], None]) -> None:
    """On brokers of their own, twice as many of each: without and with ACLs and quotas."""
    made = [(kind, how) for kind in secure.SERVERS for how in ("open", "guarded")]
    servers: list[Server] = [
        kind(folder / f"{kind.__name__}-{how}", {**SETTINGS, **(secure.GUARDED if how == "guarded" else {})})
        for kind, how in made
    ]
    with running(servers):
        unguarded, guarded = servers[::2], servers[1::2]
        for server in guarded:
            secure.guard(server)
        tls = partial(secure.over_tls, total_bytes=plan.throughput_bytes, handshakes=plan.handshakes)
        for server in servers:
            say(f"warming up {server.name}")
            warm_up(server, plan.warm_up_bytes // 4)
        piece = Piece(SECURITY, "TLS", tls, plan.runs)
        _measure_piece(replace(piece, runs=1), Results(), unguarded, None, say)
        _measure_piece(piece, results, unguarded, None, say)
        for _ in range(plan.runs):
            for those, how in ((unguarded, "open"), (guarded, "with ACLs and quotas")):
                work = partial(secure.small_requests, count=plan.requests, how=how)
                _measure_piece(Piece(SECURITY, f"small requests, {how}", work, 1), results, those, None, say)


def _large_groups(plan: Plan) -> Iterator[Piece]:
    for name, load in (("classic group", groups.classic_group), ("consumer group", groups.consumer_group)):
        yield Piece(GROUPS, name, partial(load, members=plan.group_members), plan.runs)


def _many_groups(plan: Plan) -> Iterator[Piece]:
    yield Piece(GROUPS, "many groups", partial(groups.many_groups, groups=plan.groups), plan.runs)


def _measure_clusters(plan: Plan, results: Results, folder: Path, say: Callable[[str], None]) -> None:
    """Three brokers each, beside one another."""
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(kind(folder / kind.__name__, settings=SETTINGS)) for kind in CLUSTERS]
        for cluster in clusters:
            say(f"warming up three brokers of {cluster.name}")
            for size in (100, 1000):
                list(replicated.throughput(cluster, size, plan.warm_up_bytes // 4))
        for name, work, runs in _replicated_work(plan):
            for number in range(runs):
                for cluster in clusters:
                    say(f"{name}, {cluster.name}, run {number + 1} of {runs}")
                    _measure_cluster(CLUSTER, results, cluster, name, work, say)


def _measure_many_partitions(plan: Plan, results: Results, folder: Path, say: Callable[[str], None]) -> None:
    """On clusters of their own, one after the other. One that cannot do it is left out, and named."""
    for count, brokers in plan.many_partitions:
        for kind in CLUSTERS:
            say(f"{count} partitions on {brokers} brokers, {kind.name}")
            with kind(folder / f"{kind.__name__}-{count}", brokers, SETTINGS) as cluster:
                work = partial(replicated.many_partitions, count=count)
                _measure_cluster(MANY_PARTITIONS, results, cluster, f"{count:,} partitions", work, say)


def _replicated_work(plan: Plan) -> Iterator[tuple[str, Callable[[Cluster], Iterable[Reading]], int]]:
    yield "idle", replicated.idle, 1
    for size, total in ((1000, plan.replicated_bytes), (100, plan.replicated_bytes // 2)):
        yield f"replicated {size} B", partial(replicated.throughput, size=size, total_bytes=total), plan.runs
    yield "replicated latency", partial(replicated.latency, duration_s=plan.latency_s), plan.runs
    for with_controller in (False, True):
        work = partial(replicated.fail_over, with_controller=with_controller)
        yield "controller fails" if with_controller else "leader fails", work, plan.fail_overs
    yield "catching up", partial(replicated.catching_up, total_bytes=plan.catch_up_bytes), 1


def _measure_cluster(
    section: str,
    results: Results,
    cluster: Cluster,
    name: str,
    work: Callable[[Cluster], Iterable[Reading]],
    say: Callable[[str], None],
) -> None:
    settle_machine()
    try:
        for reading in work(cluster):
            results.add(section, cluster.name, [reading])
    except (WorkNotDone, StartFailed, KafkaException, OSError) as problem:
        say(f"{name} failed on {cluster.name}: {problem}")
        results.failures.append(f"{name} on {cluster.name}")
        cluster.start()


def warm_up(server: Server, total_bytes: int) -> None:
    """A JVM compiles what it has run often: without this, Apache Kafka would need twice its CPU."""
    deadline = time.monotonic() + 300
    for size in (100, 1000):
        for _ in librdkafka.throughput(server, size, 1, total_bytes // 2):
            pass
        if time.monotonic() > deadline:
            return
    for _ in raw_load.small_produce(server, 5_000):
        pass
    for _ in raw_load.small_fetches(server, 2_000):
        pass


def pieces(plan: Plan, servers: list[Server]) -> Iterator[Piece]:
    section, half = "Throughput with librdkafka", plan.throughput_bytes // 2
    for size, total in ((1000, plan.throughput_bytes), (100, half)):
        for partitions in (1, 8):
            work: Work = partial(librdkafka.throughput, size=size, partitions=partitions, total_bytes=total)
            yield Piece(section, f"{size} B, {partitions} partitions", work, plan.runs)
    section = "Throughput with Kafka's own tools"
    with_groups = all(java_tools.serves_groups(server) for server in servers)
    for size, total in ((1000, plan.throughput_bytes), (100, half)):
        work = partial(java_tools.throughput, size=size, total_bytes=total, with_groups=with_groups)
        yield Piece(section, f"Java tools, {size} B", work, plan.runs)
    yield from _latency_pieces(plan, with_groups)
    section = "Broker CPU per request"
    requests, total = plan.requests, plan.throughput_bytes
    work = partial(raw_load.small_requests, count=requests)
    yardstick: Work = partial(prototype.small_requests, count=requests)
    yield Piece(section, "small requests", work, plan.runs, yardstick)
    yield Piece(section, "large requests", partial(raw_load.large_requests, total_bytes=total), plan.runs)
    work = partial(
        compaction.latency_beside_compaction, fill_bytes=plan.compacted_bytes, idle_s=2 * plan.latency_s
    )
    yield Piece(COMPACTION, "compaction", work, 1)
    work = partial(lookup.growing_log, sizes=plan.look_up_sizes, look_ups=plan.look_ups)
    yield Piece("Look-up in a growing log", "look-up", work, 1)


def _latency_pieces(plan: Plan, with_groups: bool) -> Iterator[Piece]:
    section, seconds = "Latency", plan.latency_s
    count = int(1000 * seconds)
    one_by_one: Work = partial(librdkafka.synchronous_latency, count=count, size=1000)
    paced: Work = partial(librdkafka.paced_latency, rate=1000, duration_s=seconds, size=1000)
    end_to_end: Work = partial(librdkafka.end_to_end_latency, rate=500, duration_s=seconds, size=1000)
    yield Piece(section, "synchronous produce", one_by_one, plan.runs)
    yield Piece(section, "paced produce", paced, plan.runs)
    yield Piece(section, "end to end", end_to_end, plan.runs)
    if with_groups:
        work: Work = partial(java_tools.end_to_end_latency, count=count, size=1000)
        yield Piece(section, "Java end to end", work, plan.runs)


def machine() -> dict[str, str]:
    """What the numbers depend on; nothing that names the machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "kernel": f"{os.uname().sysname} {os.uname().release.split('-')[0]} {os.uname().machine}",
    }
