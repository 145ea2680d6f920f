"""What a scrape reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from golden.recorder import Kafka
from moldau import __version__
from moldau.broker.metrics.broker import counter_samples
from moldau.broker.metrics.counters import Histogram, Metrics
from moldau.broker.metrics.page import metrics_page
from moldau.broker.metrics.table import FAMILIES
from moldau.broker.metrics.text import Sample, buckets, exposition, labelled
from moldau.broker.node import Broker
from moldau.records.record import Record, build_batch
from moldau.runtime.line import whole
from moldau.testing import Cluster

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
CONFIG = {"moldau.http.port": 0, "offsets.topic.num.partitions": 1}
LARGE_BYTES = 400_000  # its records leave by sendfile


def scrape(broker: Broker) -> list[str]:
    assert broker.http is not None
    host, port = broker.http.address
    with urlopen(f"http://{host}:{port}/metrics") as answer:
        return answer.read().decode().splitlines()


def values_of(lines: list[str]) -> dict[str, float]:
    told = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in told}


class Stage:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        self.kafka = Kafka(host, int(port))

    @property
    def broker(self) -> Broker:
        broker = self.cluster._members[1].broker
        assert broker is not None
        return broker

    def produce(self, topic: str, *values: bytes, acks: int = -1) -> bytes:
        batch = build_batch([Record(n, 1, None, value) for n, value in enumerate(values)])
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        self.kafka.ask("Produce", 9, {"acks": acks, "timeout": 1000, "topic_data": data})
        return batch

    def fetch(self, topic: str, offset: int, wait_ms: int = 0, max_bytes: int = 1000) -> None:
        wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}]
        topics = [{"topic": topic, "partitions": wanted}]
        request = {"replica_id": -1, "max_bytes": max_bytes, "min_bytes": 1, "max_wait": wait_ms}
        self.kafka.ask("Fetch", 11, request | {"session_epoch": -1, "topics": topics})

    def commit(self, group: str, topic: str, offset: int) -> None:
        self.kafka.ask("FindCoordinator", 2, {"key": group, "key_type": 0})
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        topics = [{"name": topic, "partitions": partitions}]
        request = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        answer = self.kafka.ask("OffsetCommit", 8, request)
        assert not answer.topics[0].partitions[0].error_code

    def told(self) -> dict[str, float]:
        self.broker._http._made.clear()  # what was told a moment ago may be told again
        return values_of(scrape(self.broker))


@contextmanager
def stage(topics: dict[str, dict[str, object]]) -> Iterator[Stage]:
    with Cluster(config=CONFIG) as cluster:
        for name, config in topics.items():
            cluster.create_topic(name, 1, config)
        yield Stage(cluster)


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == metrics_page(), "run `make docs`"


def test_names_follow_the_conventions_of_prometheus() -> None:
    for family in FAMILIES.values():
        assert family.name.startswith(("moldau_", "process_"))
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        if family.kind == "histogram":
            assert family.name.endswith("_seconds")


def test_large_counters_are_written_to_the_last_digit_with_and_without_labels() -> None:
    metrics = Metrics(bytes_in=12_345_678_901)
    metrics.of_api("Fetch").requests = 1_234_567
    lines = whole(exposition(counter_samples(metrics))).splitlines()
    assert "moldau_network_received_bytes_total 12345678901" in lines
    assert 'moldau_requests_total{api="Fetch"} 1234567' in lines


def test_a_histogram_adds_up_from_bucket_to_bucket() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 3.0):
        histogram.observe(seconds)
    assert dict(buckets(histogram, '{api="Fetch"}')) == {
        '_bucket{api="Fetch",le="0.1"}': 2,
        '_bucket{api="Fetch",le="1"}': 3,
        '_bucket{api="Fetch",le="+Inf"}': 4,
        '_sum{api="Fetch"}': pytest.approx(3.65),
        '_count{api="Fetch"}': 4,
    }
    assert next(buckets(histogram))[0] == '_bucket{le="0.1"}'


def test_labels_are_escaped() -> None:
    sample = Sample("moldau_topics", ((labelled(folder='a"b\\c\nd'), 1),))
    assert whole(exposition([sample])).splitlines()[2] == 'moldau_topics{folder="a\\"b\\\\c\\nd"} 1'


def test_what_happens_is_counted() -> None:
    small = build_batch([Record(0, 1, None, b"first"), Record(1, 2, None, b"second")])
    with stage({"topic": {"flush.messages": 1, "max.message.bytes": len(small)}}) as on:
        on.produce("topic", b"first", b"second")
        on.produce("topic", b"too large" * 50)
        on.fetch("topic", 0)
        on.fetch("topic", 2, wait_ms=1)
        told = on.told()
    expected = {
        "moldau_produced_batches_total": 1,
        "moldau_produced_messages_total": 2,
        "moldau_produced_bytes_total": len(small),
        "moldau_produce_refused_total": 1,
        "moldau_flushes_total": 1,
        "moldau_fetched_bytes_total": len(small),
        "moldau_fetches_parked_total": 1,
        "moldau_connections_opened_total": 1,
        "moldau_connections": 1,
        "moldau_partitions": 1,
        "moldau_topics": 1,
        "moldau_ready": 1,
        'moldau_requests_total{api="Produce"}': 2,
        'moldau_requests_total{api="Fetch"}': 2,
        'moldau_request_errors_total{api="Produce",error="MESSAGE_TOO_LARGE"}': 1,
        'moldau_request_duration_seconds_count{api="Produce"}': 2,
        'moldau_request_duration_seconds_count{api="Fetch"}': 2,
        'moldau_topic_end_offsets{topic="topic"}': 2,
    }
    assert {name: told[name] for name in expected} == expected
    assert told["moldau_network_received_bytes_total"] > len(small)
    assert told["moldau_network_sent_bytes_total"] > len(small)


def test_traffic_is_told_by_topic_that_of_sendfile_too() -> None:
    with stage({"one": {}, "two": {}}) as on:
        small = on.produce("one", b"a", b"b", b"c")
        large = on.produce("two", b"x" * LARGE_BYTES)
        on.fetch("one", 1)  # the whole batch comes, two of its messages count
        before = on.broker.metrics.bytes_out
        on.fetch("two", 0, max_bytes=10 * LARGE_BYTES)
        told = on.told()
    expected = {"one": (len(small), 3, len(small), 2), "two": (len(large), 1, len(large), 1)}
    for topic, figures in expected.items():
        names = "received_bytes", "received_messages", "sent_bytes", "sent_messages"
        assert tuple(told[f'moldau_topic_{name}_total{{topic="{topic}"}}'] for name in names) == figures
    assert told["moldau_network_sent_bytes_total"] - before > len(large)
    sizes = {name: size for name, size in told.items() if name.startswith("moldau_log_size_bytes")}
    assert sorted(sizes.values()) == sorted([len(small), len(large)])


def test_a_long_poll_counts_once_and_with_its_wait() -> None:
    with stage({"topic": {}}) as on:
        on.produce("topic", b"before")
        on.fetch("topic", 1, wait_ms=120)
        told = on.told()
    assert told['moldau_request_duration_seconds_count{api="Fetch"}'] == 1
    assert told['moldau_request_duration_seconds_sum{api="Fetch"}'] >= 0.11
    assert told['moldau_request_duration_seconds_bucket{api="Fetch",le="0.1"}'] == 0
    assert told['moldau_topic_sent_bytes_total{topic="topic"}'] == 0


def test_errors_are_counted_by_api_and_code() -> None:
    with stage({"topic": {}}) as on:
        on.fetch("topic", 7)
        on.fetch("nowhere", 0)
        on.produce("nowhere", b"a")
        on.kafka.ask("ListGroups", 1, {})
        on.kafka.ask("DescribeGroups", 0, {"groups": ["a", "b"]})
        told = on.told()
    errors = {name: count for name, count in told.items() if name.startswith("moldau_request_errors_total")}
    assert errors == {
        'moldau_request_errors_total{api="Fetch",error="OFFSET_OUT_OF_RANGE"}': 1,
        'moldau_request_errors_total{api="Fetch",error="UNKNOWN_TOPIC_OR_PARTITION"}': 1,
        'moldau_request_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}': 1,
        'moldau_request_errors_total{api="DescribeGroups",error="NOT_COORDINATOR"}': 2,
    }


def test_the_counts_of_a_topic_that_is_made_anew_begin_at_0_and_the_totals_stay() -> None:
    with stage({"topic": {}}) as on:
        batch = on.produce("topic", b"a")
        on.cluster.delete_topic("topic")
        assert 'moldau_topic_received_messages_total{topic="topic"}' not in on.told()
        on.cluster.create_topic("topic")
        told = on.told()
    assert told['moldau_topic_received_messages_total{topic="topic"}'] == 0
    assert told["moldau_produced_bytes_total"] == len(batch)


def test_groups_and_transactions_are_told_by_state_and_groups_with_their_lag() -> None:
    with stage({"one": {}, "two": {}}) as on:
        for number in range(10):
            on.produce("one", b"%d" % number)
        on.commit("readers", "one", 4)
        on.commit("readers", "two", 0)
        on.commit("others", "one", 10)
        on.kafka.ask("FindCoordinator", 2, {"key": "writer", "key_type": 1})
        request = {"transactional_id": "writer", "transaction_timeout": 1000, "producer_id": -1}
        on.kafka.ask("InitProducerId", 4, request | {"producer_epoch": -1})
        told = on.told()
    expected = {
        'moldau_groups{type="classic",state="Empty"}': 2,
        'moldau_transactions{state="Empty"}': 1,
        'moldau_coordinators{topic="__consumer_offsets",state="active"}': 1,
        'moldau_group_members{group="readers"}': 0,
        'moldau_group_committed_offsets{group="readers",topic="one"}': 4,
        'moldau_group_lag_messages{group="readers",topic="one"}': 6,
        'moldau_group_lag_messages_max{group="readers",topic="one"}': 6,
        'moldau_group_lag_unknown_partitions{group="readers",topic="one"}': 0,
        'moldau_group_lag_messages{group="readers",topic="two"}': 0,
        'moldau_group_lag_messages{group="others",topic="one"}': 0,
    }
    assert {name: told.get(name) for name in expected} == expected


def test_a_broker_tells_of_its_disks_its_process_and_itself() -> None:
    with stage({}) as on:
        told = on.told()
        (folder,) = on.broker.config.log_dirs
    build = next(name for name in told if name.startswith("moldau_build_info"))
    assert f'version="{__version__}"' in build and told[build] == 1
    free, whole_disk = (
        told[f'moldau_data_folder_{what}_bytes{{folder="{folder}"}}'] for what in ("free", "disk")
    )
    assert 0 < free < whole_disk
    assert told["moldau_event_loop_delay_seconds_count"] >= 0
    if sys.platform == "linux":
        assert told["process_cpu_seconds_total"] > 0
        assert 10 << 20 < told["process_resident_memory_bytes"] < told["process_virtual_memory_bytes"]
        assert 3 < told["process_open_fds"] < told["process_max_fds"]
        assert told["process_start_time_seconds"] > 1_700_000_000
        assert told["process_threads"] >= 2


def test_all_that_is_told_is_in_the_table_and_all_of_the_table_is_told() -> None:
    with stage({"topic": {}}) as on:
        lines = scrape(on.broker)
    told = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    missing = FAMILIES.keys() - told
    assert told <= FAMILIES.keys()
    assert all(name.startswith("process_") for name in missing) and (not missing or sys.platform != "linux")
    assert len(told) == sum(line.startswith("# TYPE") for line in lines)
    names = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(names) == len(set(names))


def test_the_lag_of_a_group_is_whole_though_its_coordinator_holds_a_part_of_the_topic() -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic("topic", 3, replicas=1)
        common = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = Producer(common)
        for partition in range(3):
            for number in range(10 * (partition + 1)):
                producer.produce("topic", b"%d" % number, partition=partition)
        producer.flush(30)
        committed = [Place("topic", partition, 1) for partition in range(3)]
        Consumer({**common, "group.id": "g"}).commit(offsets=committed, asynchronous=False)
        lag: dict[str, float] = {}
        for _ in range(2):
            for broker in cluster._running_brokers():
                broker._http._made.clear()
                lag |= {
                    name: value
                    for name, value in values_of(scrape(broker)).items()
                    if "_lag_" in name and 'g"' in name
                }
        assert lag == {
            'moldau_group_lag_messages{group="g",topic="topic"}': 10 + 20 + 30 - 3,
            'moldau_group_lag_messages_max{group="g",topic="topic"}': 29,
            'moldau_group_lag_unknown_partitions{group="g",topic="topic"}': 0,
        }
        coordinator = next(
            b for b in cluster._running_brokers() if b.coordinators.groups.shard(0) is not None
        )
        for broker in cluster._running_brokers():
            if broker is not coordinator:
                cluster.kill(broker.node_id)
        coordinator._http._made.clear()
        told = values_of(scrape(coordinator))
        assert told['moldau_group_lag_unknown_partitions{group="g",topic="topic"}'] == 2
