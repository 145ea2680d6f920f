"""What a scrape reads."""

from __future__ import annotations

from urllib.request import urlopen

from golden.recorder import Kafka
from moldau.broker.metrics import Metrics, counters, exposition
from moldau.records.record import Record, build_batch
from moldau.testing import Cluster


def test_large_counters_are_written_to_the_last_digit_with_and_without_labels() -> None:
    metrics = Metrics(bytes_in=12_345_678_901, requests={"Fetch": 1_234_567})
    lines = exposition(counters(metrics)).splitlines()
    assert "moldau_network_received_bytes_total 12345678901" in lines
    assert 'moldau_requests_total{api="Fetch"} 1234567' in lines


def test_what_happens_is_counted() -> None:
    batch = build_batch([Record(0, 1, None, b"first"), Record(1, 2, None, b"second")])
    config = {"moldau.http.port": 0}
    with Cluster(config=config) as cluster:
        cluster.create_topic("topic", 1, {"flush.messages": 1, "max.message.bytes": len(batch)})
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        kafka = Kafka(host, int(port))
        for records in (batch, build_batch([Record(0, 1, None, b"too large" * 50)])):
            data = [{"name": "topic", "partition_data": [{"index": 0, "records": records}]}]
            kafka.ask("Produce", 9, {"acks": -1, "timeout": 1000, "topic_data": data})
        for offset, wait_ms in (0, 0), (2, 1):
            wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}]
            topics = [{"topic": "topic", "partitions": wanted}]
            request = {"replica_id": -1, "max_bytes": 1000, "min_bytes": 1, "max_wait": wait_ms}
            kafka.ask("Fetch", 11, request | {"session_epoch": -1, "topics": topics})
        broker = cluster._members[1].broker
        assert broker is not None and broker.http is not None
        http_host, http_port = broker.http.address
        with urlopen(f"http://{http_host}:{http_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    counted = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    expected = {
        "moldau_produced_batches_total": 1,
        "moldau_produced_messages_total": 2,
        "moldau_produced_bytes_total": len(batch),
        "moldau_produce_refused_total": 1,
        "moldau_flushes_total": 1,
        "moldau_fetched_bytes_total": len(batch),
        "moldau_fetches_parked_total": 1,
        "moldau_connections_opened_total": 1,
        "moldau_connections": 1,
        "moldau_partitions": 1,
        "moldau_topics": 1,
        "moldau_ready": 1,
        'moldau_requests_total{api="Produce"}': 2,
        'moldau_requests_total{api="Fetch"}': 2,
    }
    assert {name: int(counted[name]) for name in expected} == expected
    assert int(counted["moldau_network_received_bytes_total"]) > len(batch)
    assert int(counted["moldau_network_sent_bytes_total"]) > len(batch)
