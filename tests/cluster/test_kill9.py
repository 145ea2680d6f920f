"""kill -9 in the middle of writing, again and again: what was acknowledged and flushed is there, once, in order.

Every topic has flush.messages=1, so that an acknowledgement means that the disk has it. A quarter of the rounds kill
the broker a second time, in the middle of its recovery. (A killed process does not lose its page cache; torn and
lost writes are the simulation's part.)
"""

from __future__ import annotations

import itertools
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable

import pytest

from bench.raw import RawConnection
from bench.server import Server
from cluster.support import create_topic
from cluster.writers import Acknowledged, IdempotentWriter, PipelinedWriter, Writer
from moldau.records.record import Record
from stored import read_partition

ROUNDS = 24
TOPIC = "survivors"
PARTITIONS = 3
USUAL_SEED = 20_240_917


@pytest.mark.slow
def test_acknowledged_messages_survive_kill_9_once_and_in_order(
    new_server: Callable[..., Server], seed: Callable[[int], int]
) -> None:
    chance = random.Random(seed(USUAL_SEED))
    server = new_server().start()
    create_topic(server.bootstrap_servers, TOPIC, PARTITIONS, flush_messages="1")
    everywhere = list(range(PARTITIONS))
    writers: list[Writer] = [
        IdempotentWriter("idempotent-a", server.bootstrap_servers, TOPIC, everywhere, chance.getrandbits(32)),
        IdempotentWriter("idempotent-b", server.bootstrap_servers, TOPIC, [0], chance.getrandbits(32)),
        PipelinedWriter("pipelined-a", server.bootstrap_servers, TOPIC, everywhere, chance.getrandbits(32)),
        PipelinedWriter("pipelined-b", server.bootstrap_servers, TOPIC, [1], chance.getrandbits(32)),
    ]
    for writer in writers:
        writer.start()
    counts = []
    seen: list[list[Record]] = [[] for _ in everywhere]
    for _ in range(ROUNDS):
        live_and_die(server, chance.uniform(0.2, 1.2))
        promised = all_acknowledged(writers)
        counts.append(len(promised))
        if chance.random() < 0.25:
            server.launch()
            live_and_die(server, chance.uniform(0.05, 0.4))
        server.start()
        check(server, writers, promised, seen)
    written_in = sum(before < after for before, after in itertools.pairwise(counts))
    assert written_in >= ROUNDS // 2, f"the broker died too early to be written to: {counts}"
    for writer in writers:
        writer.end(timeout_s=30)
    assert server.stop(), server.output()
    server.start()
    check(server, writers, all_acknowledged(writers), [[] for _ in everywhere])


def all_acknowledged(writers: list[Writer]) -> list[Acknowledged]:
    return [ack for writer in writers for ack in writer.acknowledged()]


def live_and_die(server: Server, life_s: float) -> None:
    """kill -9 after a while; a broker that ends by itself before is a failure."""
    try:
        code = server.wait(life_s)
    except subprocess.TimeoutExpired:
        server.kill()
    else:
        pytest.fail(f"the broker ended by itself with code {code}:\n{server.output()}")


def check(
    server: Server, writers: list[Writer], promised: list[Acknowledged], seen: list[list[Record]]
) -> None:
    """Read what is new since the last round. A log that lost what was read then has nothing at that offset."""
    by_partition: dict[int, list[Acknowledged]] = defaultdict(list)
    for ack in promised:
        by_partition[ack.partition].append(ack)
    with RawConnection(server.bootstrap_servers) as connection:
        for partition, records in enumerate(seen):
            records += read_partition(connection, TOPIC, partition, len(records))
            assert [record.offset for record in records] == list(range(len(records))), "offsets are dense"
            check_acknowledged(records, by_partition[partition])
            for writer in writers:
                check_order(writer, records)


def check_acknowledged(stored: list[Record], promised: list[Acknowledged]) -> None:
    values = {record.value for record in stored}
    for ack in promised:
        if ack.offset >= 0:
            assert ack.offset < len(stored), (
                f"acknowledged at {ack.offset}, but the log ends at {len(stored)}"
            )
            assert stored[ack.offset].value == ack.value, f"another message stands at {ack.offset}"
        else:
            assert ack.value in values, f"{ack.value[:30]!r} was acknowledged and is not there"


def check_order(writer: Writer, stored: list[Record]) -> None:
    """Ascending numbers: in order, and none twice. Idempotent messages are retried until they are stored: no gap."""
    prefix = f"{writer.name}:".encode()
    numbers = [int(r.value.split(b":")[2]) for r in stored if r.value and r.value.startswith(prefix)]
    assert all(before < after for before, after in itertools.pairwise(numbers)), writer.name
    if writer.is_idempotent:
        assert numbers == list(range(len(numbers))), writer.name
