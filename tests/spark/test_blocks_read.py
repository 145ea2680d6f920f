"""The source's block reader, on Moldau and on Apache Kafka: every visible record of a range, once and in order."""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from bench.apache_kafka import KafkaServer
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.spark.blocks.brokers import Brokers, Described
from moldau.spark.blocks.connection import Address
from moldau.spark.blocks.errors import DataLoss, ReadFailed, TopicRecreated
from moldau.spark.blocks.read import read_split
from moldau.spark.blocks.settings import ReadSettings, Split
from moldau.testing import Cluster
from spark.topics import (
    TIMEOUT_S,
    create_topic,
    delete_topic,
    new_producer,
    produce_batch,
    produce_values,
    settings_of,
    whole,
)

SETTINGS = {"log.retention.ms": -1, "log.cleaner.backoff.ms": 50}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": 1 << 20,
    "min_cleanable_dirty_ratio": 0.01,
    "max_compaction_lag_ms": 1,
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module", params=["moldau", "kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "moldau":
        with Cluster(config={"log.cleaner.backoff.ms": 50}) as cluster:
            yield cluster.bootstrap_servers
    else:
        request.getfixturevalue("requires_kafka")
        with KafkaServer(tmp_path_factory.mktemp("kafka"), SETTINGS) as server:
            yield server.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str, topic_names: Callable[[str], str], numbers: Iterator[int]) -> str:
    name = topic_names(f"blocks-{next(numbers)}")
    create_topic(bootstrap, name)
    return name


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count()


def rows_of(settings: ReadSettings, split: Split) -> list[dict[str, object]]:
    batches = list(read_split(settings, split))
    assert all(batch.schema == settings.schema and batch.num_rows for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def column(settings: ReadSettings, split: Split, name: str = "value") -> list[object]:
    return [row[name] for row in rows_of(settings, split)]


def test_a_row_is_what_sparks_connector_makes_of_a_record(bootstrap: str, topic: str) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
    timestamp = int(moment.timestamp() * 1000)
    records = [
        Record(0, timestamp, b"key", b"value", (("h", b"1"), ("h", None), ("ü", b""))),
        Record(1, timestamp + 1, None, None),
        Record(2, timestamp - 5, b"", b""),
    ]
    produce_batch(bootstrap, topic, build_batch(records))
    rows = rows_of(settings_of(bootstrap), whole(topic, 3))
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "ü", "value": b""}]
    same = {"topic": topic, "partition": 0, "timestampType": 0}
    step = datetime.timedelta(milliseconds=1)
    assert rows == [
        {**same, "key": b"key", "value": b"value", "offset": 0, "timestamp": moment, "headers": headers},
        {**same, "key": None, "value": None, "offset": 1, "timestamp": moment + step, "headers": None},
        {**same, "key": b"", "value": b"", "offset": 2, "timestamp": moment - 5 * step, "headers": None},
    ]


def test_only_the_wanted_columns_come_in_the_wanted_order(bootstrap: str, topic: str) -> None:
    produce_values(bootstrap, topic, [b"a", b"b"])
    settings = settings_of(bootstrap, "offset", "topic", "value")
    (batch,) = read_split(settings, whole(topic, 2))
    assert batch.to_pydict() == {"offset": [0, 1], "topic": [topic] * 2, "value": [b"a", b"b"]}


def test_a_log_append_time_is_the_time_of_all_records(
    bootstrap: str, topic_names: Callable[[str], str]
) -> None:
    name = topic_names("append-time")
    create_topic(bootstrap, name, message_timestamp_type="LogAppendTime")
    produce_batch(bootstrap, name, build_batch([Record(n, 1000 + n, None, b"v") for n in range(3)]))
    rows = rows_of(settings_of(bootstrap, "timestamp", "timestampType"), whole(name, 3))
    assert {row["timestampType"] for row in rows} == {1}
    assert len({row["timestamp"] for row in rows}) == 1
    assert rows[0]["timestamp"] > datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)  # type: ignore[operator]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_many_batches(bootstrap: str, topic: str, codec: str) -> None:
    values = [b"%d-" % n * 20 for n in range(3000)]
    produce_values(bootstrap, topic, values, compression_type=codec, batch_num_messages=500)
    assert column(settings_of(bootstrap, "value"), whole(topic, 3000)) == values


@pytest.mark.parametrize("codec", CODECS)
def test_a_range_may_begin_and_end_within_batches(bootstrap: str, topic: str, codec: str) -> None:
    records = [Record(n, 1000, None, b"%d" % n) for n in range(10)]
    for _ in range(3):
        produce_batch(bootstrap, topic, build_batch(records, codec=Codec[codec.upper()]))
    settings = settings_of(bootstrap, "offset", "value")
    for first, after in [(0, 30), (3, 27), (9, 11), (10, 20), (15, 16), (29, 30), (7, 7)]:
        expected = [{"offset": n, "value": b"%d" % (n % 10)} for n in range(first, after)]
        assert rows_of(settings, Split(topic, 0, first, after)) == expected


def test_a_batch_larger_than_the_limit_comes_whole(bootstrap: str, topic_names: Callable[[str], str]) -> None:
    name = topic_names("large")
    create_topic(bootstrap, name, max_message_bytes=20_000_000)
    values = [b"x" * 9_000_000, b"small", b"y" * 6_000_000]
    produce_values(bootstrap, name, values, message_max_bytes=20_000_000, linger_ms=0)
    assert column(settings_of(bootstrap, "value"), whole(name, 3)) == values


def test_aborted_transactions_are_seen_only_by_those_who_ask_for_them(bootstrap: str, topic: str) -> None:
    mine = new_producer(bootstrap, transactional_id=f"{topic}-a")
    other = new_producer(bootstrap, transactional_id=f"{topic}-b")
    mine.init_transactions(TIMEOUT_S)
    other.init_transactions(TIMEOUT_S)
    visible, all_values = [], []
    for number in range(12):
        mine.begin_transaction()
        other.begin_transaction()
        for producer, label in ((mine, "mine"), (other, "other")):
            value = f"{label}-{number}".encode()
            producer.produce(topic, value, partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            all_values.append(value)
            if number % 3 != (1 if producer is mine else 2):
                visible.append(value)
        other.abort_transaction(TIMEOUT_S) if number % 3 == 2 else other.commit_transaction(TIMEOUT_S)
        mine.abort_transaction(TIMEOUT_S) if number % 3 == 1 else mine.commit_transaction(TIMEOUT_S)
    split = whole(topic, 48)  # a record and a marker of each
    assert column(settings_of(bootstrap, "value"), split) == all_values
    committed = settings_of(bootstrap, "value", "offset", read_committed=True)
    assert column(committed, split) == visible
    for first in range(48):
        expected = [row for row in rows_of(committed, split) if row["offset"] >= first]  # type: ignore[operator]
        assert rows_of(committed, whole(topic, 48, first)) == expected


def test_a_range_that_ends_with_markers_ends(bootstrap: str, topic: str) -> None:
    producer = new_producer(bootstrap, transactional_id=topic)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    assert column(settings_of(bootstrap, "value", read_committed=True), whole(topic, 2)) == [b"v"]
    assert column(settings_of(bootstrap, "value"), whole(topic, 2, 1)) == []


def test_an_open_transaction_is_waited_for_and_then_named(bootstrap: str, topic: str) -> None:
    producer = new_producer(bootstrap, transactional_id=topic)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    with pytest.raises(ReadFailed, match="up to 0 only: a transaction is open there"):
        rows_of(settings_of(bootstrap, read_committed=True, timeout_ms=700), whole(topic, 1))
    producer.abort_transaction(TIMEOUT_S)


def test_gaps_that_compaction_leaves_are_passed_over(
    bootstrap: str, topic_names: Callable[[str], str]
) -> None:
    """Five keys in several segments: of all but the last one only the newest record of each key stays."""
    name, count = topic_names("compacted"), 600
    create_topic(bootstrap, name, **COMPACTED)
    producer = new_producer(bootstrap, batch_num_messages=10)
    for number in range(count):
        producer.produce(name, b"%d " % number * 2000, b"%d" % (number % 5), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    settings = settings_of(bootstrap, "key", "value", "offset")
    deadline = time.monotonic() + TIMEOUT_S
    while len(rows := rows_of(settings, whole(name, count))) > count // 2:
        assert time.monotonic() < deadline, f"{len(rows)} records are left"
        time.sleep(0.05)
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(offsets) and offsets[-5:] == list(range(count - 5, count))  # type: ignore[type-var]
    assert all(row["value"] == b"%d " % row["offset"] * 2000 for row in rows)  # type: ignore[operator]
    assert rows_of(settings, whole(name, 5)) == []  # nothing of this range is left
    assert [row["offset"] for row in rows_of(settings, whole(name, count, count - 3))] == offsets[-3:]


def test_deleted_offsets_are_data_loss_or_skipped(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce_values(bootstrap, topic, [b"%d" % n for n in range(10)], linger_ms=0, batch_num_messages=1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(TIMEOUT_S)
    with pytest.raises(
        DataLoss, match=r"the offsets 2 to 5 are gone: the log has 6 to 9 now.*failOnDataLoss"
    ):
        rows_of(settings_of(bootstrap), whole(topic, 10, 2))
    lenient = settings_of(bootstrap, "value", fail_on_data_loss=False)
    assert column(lenient, whole(topic, 10, 2)) == [b"6", b"7", b"8", b"9"]
    assert "are gone" in caplog.text
    assert column(lenient, whole(topic, 5, 2)) == []


def test_offsets_behind_the_end_are_data_loss_or_skipped(bootstrap: str, topic: str) -> None:
    produce_values(bootstrap, topic, [b"a", b"b"])
    with pytest.raises(DataLoss, match="the offsets 5 to 8 are gone: the log has 0 to 1 now"):
        rows_of(settings_of(bootstrap), whole(topic, 9, 5))
    assert rows_of(settings_of(bootstrap, fail_on_data_loss=False), whole(topic, 9, 5)) == []


def test_a_range_to_the_latest_goes_on_to_where_the_log_ends_when_it_is_read(
    bootstrap: str, topic: str
) -> None:
    settings, planned = settings_of(bootstrap, "value"), whole(topic, 0, to_latest=True)
    assert column(settings, planned) == []
    produce_values(bootstrap, topic, [b"a", b"b"])
    assert column(settings, planned) == [b"a", b"b"]
    produce_values(bootstrap, topic, [b"c"])
    assert column(settings, planned) == [b"a", b"b", b"c"]
    assert column(settings, whole(topic, 1, to_latest=False)) == [b"a"]


def test_a_range_to_the_latest_ends_before_an_open_transaction(bootstrap: str, topic: str) -> None:
    produce_values(bootstrap, topic, [b"a"])
    producer = new_producer(bootstrap, transactional_id=topic)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    planned = whole(topic, 0, to_latest=True)
    assert column(settings_of(bootstrap, "value", read_committed=True), planned) == [b"a"]
    assert column(settings_of(bootstrap, "value"), planned) == [b"a", b"open"]
    producer.abort_transaction(TIMEOUT_S)


def test_a_range_from_the_earliest_does_not_miss_what_retention_took(bootstrap: str, topic: str) -> None:
    produce_values(bootstrap, topic, [b"%d" % number for number in range(10)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(topic, 0, 6)
    admin.delete_records([place])[place].result(TIMEOUT_S)
    settings = settings_of(bootstrap, "value")
    assert column(settings, whole(topic, 8, 2, from_earliest=True)) == [b"6", b"7"]
    assert column(settings, whole(topic, 5, 2, from_earliest=True)) == []
    with pytest.raises(DataLoss):
        column(settings, whole(topic, 30, 20, from_earliest=True))


def test_who_leads_a_topic_is_asked_once(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = Brokers._ask

    def counted(self: Brokers, address: Address, topic: str) -> Described:
        asked.append(topic)
        return ask(self, address, topic)

    monkeypatch.setattr(Brokers, "_ask", counted)
    produce_values(bootstrap, topic, [b"a"])
    settings = settings_of(bootstrap, "value")
    assert [column(settings, whole(topic, 1)) for _ in range(3)] == [[b"a"]] * 3
    assert asked == [topic]
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic)
    produce_values(bootstrap, topic, [b"new"])
    assert column(settings, whole(topic, 1)) == [b"new"]
    assert len(asked) > 1


def topic_id_of(bootstrap: str, topic: str) -> object:
    return Brokers(bootstrap).leader_of(topic, 0).topic_id


def test_a_recreated_topic_is_not_taken_for_the_old_one(bootstrap: str, topic: str) -> None:
    produce_values(bootstrap, topic, [b"old"])
    planned = whole(topic, 1, topic_id=topic_id_of(bootstrap, topic))
    assert column(settings_of(bootstrap, "value"), planned) == [b"old"]
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic)
    produce_values(bootstrap, topic, [b"new"])
    with pytest.raises(TopicRecreated, match="deleted and created anew"):
        rows_of(settings_of(bootstrap), planned)
    assert rows_of(settings_of(bootstrap, fail_on_data_loss=False), planned) == []
    assert column(settings_of(bootstrap, "value"), whole(topic, 1)) == [b"new"]


def test_a_topic_that_is_not_there_is_waited_for_and_named(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.blocks.fetching.UNKNOWN_TOPIC_S", 0.3)
    with pytest.raises(DataLoss, match="the topic nowhere does not exist"):
        rows_of(settings_of(bootstrap), whole("nowhere", 1))


def test_a_partition_that_is_not_there_is_named(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.blocks.fetching.UNKNOWN_TOPIC_S", 0.3)
    with pytest.raises(DataLoss, match="has no partition 7"):
        rows_of(settings_of(bootstrap), whole(topic, 1, partition=7))


def test_a_reader_that_is_left_early_leaves_nothing_behind(bootstrap: str, topic: str) -> None:
    values = [b"%d" % n * 2000 for n in range(9000)]
    produce_values(bootstrap, topic, values, queue_buffering_max_messages=100_000)
    settings = settings_of(bootstrap, "value")
    reader = read_split(settings, whole(topic, len(values)))
    first = next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert 0 < first.num_rows < len(values)
    assert column(settings, whole(topic, len(values))) == values


def test_a_split_of_another_id_finds_nobody(bootstrap: str, topic: str) -> None:
    produce_values(bootstrap, topic, [b"v"])
    with pytest.raises(TopicRecreated):
        rows_of(settings_of(bootstrap), whole(topic, 1, topic_id=uuid4()))


def test_columns_that_records_do_not_have_are_refused() -> None:
    for schema, says in [
        (pa.schema([("colour", pa.string())]), "no column 'colour'"),
        (pa.schema([("value", pa.string())]), "of the type binary, not string"),
    ]:
        with pytest.raises(ValueError, match=says):
            list(read_split(ReadSettings("localhost:1", schema), whole("t", 1)))
