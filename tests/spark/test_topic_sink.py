"""`write.format("moldau")` and `writeStream.format("moldau")`: what Spark's own connector takes, refuses and says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from moldau.spark.topic_sink.writers import RUN_PROPERTY
from moldau.testing import Cluster
from spark.sink_readers import committed_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config={"auto.create.topics.enable": False}) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = f"out-{abs(hash(request.node.name))}"
    cluster.create_topic(name, 4)
    return name


def records(cluster: Cluster, topic: str) -> list[Message]:
    return committed_messages(cluster.bootstrap_servers, topic)


def values(cluster: Cluster, topic: str) -> list[bytes]:
    return sorted(message.value() for message in records(cluster, topic))


def save(frame: DataFrame, cluster: Cluster, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("moldau").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    writer.options(**options).mode(mode).save()


HEADERS = "headers array<struct<key string, value binary>>"


def test_key_value_headers_topic_and_partition_become_records(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    rows = [
        (topic, "a", b"1", [("h", b"x"), ("h", None)], 3),
        (topic, None, b"", None, None),
        (topic, "", None, [], 2),
    ]
    frame = spark.createDataFrame(rows, f"topic string, key string, value binary, {HEADERS}, partition int")
    save(frame, cluster)
    found = {message.key(): message for message in records(cluster, topic)}
    assert found[b"a"].value() == b"1"
    assert found[b"a"].headers() == [("h", b"x"), ("h", None)]
    assert found[b"a"].partition() == 3
    assert found[None].value() == b""
    assert found[b""].value() is None and found[b""].partition() == 2


def test_the_option_topic_wins_over_the_column(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    save(
        spark.createDataFrame([("elsewhere", "1")], "topic string, value string"), cluster, topic=f" {topic} "
    )
    assert values(cluster, topic) == [b"1"]
    assert "elsewhere" not in cluster.topics


def test_keys_go_to_the_partitions_that_javas_client_chooses(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    """Utils.toPositive(murmur2(key)) % 4 of Kafka's BuiltInPartitioner."""
    save(spark.range(8).selectExpr("string(id) as key", "'v' as value"), cluster, topic=topic)
    found = {int(message.key()): message.partition() for message in records(cluster, topic)}
    assert found == {number: java_partition(b"%d" % number, 4) for number in range(8)}


def java_partition(key: bytes, partitions: int) -> int:
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    hashed = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * multiplier & mask
        hashed = (hashed * multiplier & mask) ^ ((word ^ word >> 24) * multiplier & mask)
    rest = key[whole:]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (
            "'v' as value",
            {},
            "topic option required when no 'topic' attribute is present. Use the topic option",
        ),
        ("'t' as topic, 'v' as key", {}, "Required attribute 'value' not found"),
        ("1 as topic, 'v' as value", {}, "topic attribute unsupported type int. topic must be a(n) string"),
        (
            "'t' as topic, 1 as value",
            {},
            "value attribute unsupported type int. value must be a(n) string or binary",
        ),
        (
            "'t' as topic, 'v' as value, 1L as key",
            {},
            "key attribute unsupported type bigint. key must be a(n) string or binary",
        ),
        (
            "'t' as topic, 'v' as value, '1' as partition",
            {},
            "partition attribute unsupported type string. partition must be a(n) int",
        ),
        (
            "'t' as topic, 'v' as value, array('h') as headers",
            {},
            "headers must be a(n) array<struct<key:string,value:binary>>",
        ),
        ("'v' as VALUE", {"topic": "t"}, "Required attribute 'value' not found"),
        (
            "'v' as value",
            {"topic": "t", "kafka.key.serializer": "foo"},
            "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer.",
        ),
        (
            "'v' as value",
            {"topic": "t", "kafka.value.serializer": "foo"},
            "Kafka option 'value.serializer' is not supported as value are serialized with ByteArraySerializer.",
        ),
        ("'v' as value", {"topic": "t", "kafka.transactional.id": "x"}, "Use the option exactlyOnce"),
        ("'v' as value", {"topic": "t", "kafka.no.such": "x"}, "No such configuration property"),
        ("'v' as value", {"topic": "t", "exactlyOnce": "yes"}, "Option 'exactlyOnce' must be true or false"),
        ("'v' as value", {"topic": "t", "txnAppId": "x"}, "need exactlyOnce=true"),
    ],
)
def test_what_cannot_be_written_is_refused_at_analysis(
    spark: SparkSession, cluster: Cluster, columns: str, options: dict[str, str], sentence: str
) -> None:
    from pyspark.errors import AnalysisException

    frame = spark.sql(f"select {columns}")
    with pytest.raises(AnalysisException) as refusal:
        save(frame, cluster, **options)
    assert sentence in str(refusal.value)


def test_save_modes_other_than_append_are_refused(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.sql("select 'v' as value")
    for mode, sentence in [
        ("overwrite", "Save mode Overwrite not allowed for Kafka"),
        ("ignore", "mode"),
        ("errorifexists", "mode"),
    ]:
        with pytest.raises(Exception, match=sentence):
            save(frame, cluster, mode, topic=topic)
    assert values(cluster, topic) == []


def test_a_null_topic_fails_its_task_in_the_words_of_sparks_connector(
    spark: SparkSession, cluster: Cluster
) -> None:
    sentence = "contains a null topic. Use the `topic` option for setting a default topic."
    with pytest.raises(Exception, match=sentence):
        save(spark.sql("select string(null) as topic, 'v' as value"), cluster)


def test_a_record_that_is_not_delivered_fails_its_task(spark: SparkSession, cluster: Cluster) -> None:
    frame = spark.sql("select 'nowhere' as topic, 'v' as value")
    with pytest.raises(Exception, match=r"a record for .*nowhere"):
        save(frame, cluster, **{"kafka.max.block.ms": "100"})


def test_an_exactly_once_save_by_application_and_version_writes_once(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    frame = spark.range(0, 100, 1, 3).selectExpr("string(id) as value")
    for version in ("0", "0", "1", "0", "1"):
        save(frame, cluster, topic=topic, exactlyOnce="true", txnAppId="app", txnVersion=version)
    assert values(cluster, topic) == sorted(2 * [b"%d" % number for number in range(100)])


def test_an_exactly_once_save_without_an_application_writes_every_time(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    frame = spark.range(10).selectExpr("string(id) as value")
    for _ in range(2):
        save(frame, cluster, topic=topic, exactlyOnce="true")
    assert len(values(cluster, topic)) == 20


class Stream:
    """A stream of numbers, ten in each batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._next = 0
        (folder / "in").mkdir()

    def add(self) -> None:
        numbers = "\n".join(str(self._next + number) for number in range(10))
        (self._folder / f"in/{self._next}.txt").write_text(numbers)
        self._next += 10

    def frame(self) -> DataFrame:
        return self._spark.readStream.option("maxFilesPerTrigger", "1").text(str(self._folder / "in"))

    def run(self, writer: Any) -> Any:
        query = (
            writer.option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return query

    @property
    def expected(self) -> list[bytes]:
        return sorted(b"%d" % number for number in range(self._next))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def to_topic(frame: DataFrame, cluster: Cluster, topic: str, **options: str) -> Any:
    return (
        frame.writeStream.format("moldau")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", topic)
        .options(**options)
    )


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_stream_is_written(cluster: Cluster, topic: str, stream: Stream, exactly_once: str) -> None:
    for _ in range(3):
        stream.add()
    stream.run(to_topic(stream.frame(), cluster, topic, exactlyOnce=exactly_once))
    assert values(cluster, topic) == stream.expected


def test_a_batch_that_is_replayed_writes_nothing_twice_by_exactly_once(
    cluster: Cluster, topic: str, stream: Stream, tmp_path: Path
) -> None:
    """Spark replays what its checkpoint has as planned and not as committed."""
    for _ in range(3):
        stream.add()
        stream.run(to_topic(stream.frame(), cluster, topic, exactlyOnce="true"))
        newest = max((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    stream.run(to_topic(stream.frame(), cluster, topic, exactlyOnce="true"))
    assert values(cluster, topic) == stream.expected


def test_without_exactly_once_a_replayed_batch_is_written_again(
    cluster: Cluster, topic: str, stream: Stream, tmp_path: Path
) -> None:
    stream.add()
    for _ in range(2):
        stream.run(to_topic(stream.frame(), cluster, topic))
        (tmp_path / "checkpoint/commits/0").unlink()
        (tmp_path / "checkpoint/commits/.0.crc").unlink(missing_ok=True)
    assert values(cluster, topic) == sorted(2 * stream.expected)


def test_update_mode_goes_through_for_each_batch(
    spark: SparkSession, cluster: Cluster, topic: str, stream: Stream
) -> None:
    counts = stream.frame().selectExpr("int(value) % 2 as odd").groupBy("odd").count()

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("string(odd) as key", "string(count) as value")
        save(rows, cluster, topic=topic, exactlyOnce="true", txnAppId="counts", txnVersion=str(number))

    for _ in range(2):
        stream.add()
        stream.run(counts.writeStream.outputMode("update").foreachBatch(write))
    assert values(cluster, topic) == [b"10", b"10", b"5", b"5"]


def test_complete_mode_writes_the_whole_result_each_time(
    cluster: Cluster, topic: str, stream: Stream
) -> None:
    counts = stream.frame().groupBy().count().selectExpr("string(count) as value")
    for _ in range(2):
        stream.add()
        stream.run(to_topic(counts, cluster, topic, exactlyOnce="true").outputMode("complete"))
    assert values(cluster, topic) == [b"10", b"20"]


def test_the_topic_of_the_markers_is_made_and_stays_empty(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    save(spark.sql("select 'v' as value"), cluster, topic=topic, exactlyOnce="true", markerTopic="marks")
    assert "marks" in cluster.topics
    assert records(cluster, "marks") == []
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    assert [group for group in groups if group.startswith("moldau-sink-") and topic in group]


def test_tasks_know_the_run_of_their_query(spark: SparkSession, tmp_path: Path) -> None:
    """Where this fails, a new PySpark has another name for it: tasks without rows look for markers every time."""
    import pyarrow as pa
    from pyspark import TaskContext

    def properties(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            context = TaskContext.get()
            assert context is not None
            yield pa.RecordBatch.from_pydict({"run": [context.getLocalProperty(RUN_PROPERTY)]})

    found: list[Any] = []
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = (
        frame.mapInArrow(properties, "run string")
        .writeStream.foreachBatch(lambda batch, number: found.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(once=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert {row.run for row in found} == {str(query.runId)}
