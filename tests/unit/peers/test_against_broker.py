"""A peer and a real broker: versions, messages, and a follower's way to records."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.peers.peers import Peers
from moldau.records.record import Record, build_batch, read_records
from moldau.runtime.ports import Runtime
from moldau.runtime.real import run
from moldau.testing import Cluster
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.replica_fetch import WantedPartition, pack_replica_fetch, parse_fetch_response

PRODUCE, FETCH, METADATA = (APIS_BY_NAME[name].key for name in ("Produce", "Fetch", "Metadata"))
CONSUMER = -1
VALUES = [b"first", b"second", b"x" * 300_000]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}) as cluster:
        yield cluster


def fetch_body(version: int, topic_id: bytes, offset: int) -> bytes:
    return pack_replica_fetch(
        version,
        CONSUMER,
        -1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[(topic_id, [WantedPartition(0, -1, offset, -1, -1, 10 << 20)])],
    )


def test_records_are_produced_and_fetched_without_a_copy(cluster: Cluster) -> None:
    host, _, port = cluster.bootstrap_servers.rpartition(":")

    async def main(runtime: Runtime) -> None:
        peers = Peers(runtime, "test", lambda _: (host, int(port)))
        peer = peers.peer(1)
        metadata = SimpleNamespace(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        (topic,) = (await peer.ask(METADATA, metadata)).topics
        records = [Record(index, 1, None, value) for index, value in enumerate(VALUES)]
        assert await produced(peer, topic, build_batch(records)) == 0

        version = peer.version_of(FETCH)
        assert version >= 16
        body = await peer.ask_raw(FETCH, version, fetch_body(version, topic.topic_id.bytes, 0))
        (found,) = parse_fetch_response(body, 0, version).partitions
        assert (found.topic_id, found.partition, found.error_code) == (topic.topic_id.bytes, 0, 0)
        assert (found.high_watermark, found.log_start_offset) == (3, 0)
        fetched = read_records(bytes(body[found.records_start : found.records_stop]))
        assert [record.value for record in fetched] == VALUES
        buffer = body.obj
        peer.give_back(body)
        again = await peer.ask_raw(FETCH, version, fetch_body(version, topic.topic_id.bytes, 0))
        assert again.obj is buffer
        peers.close()

    run(main)


async def produced(peer: Any, topic: Any, batch: bytes) -> int:
    part = SimpleNamespace(index=0, records=batch)
    message = SimpleNamespace(
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=(SimpleNamespace(name=topic.name, topic_id=topic.topic_id, partition_data=(part,)),),
    )
    answer = await peer.ask(PRODUCE, message)
    return int(answer.responses[0].partition_responses[0].error_code)
