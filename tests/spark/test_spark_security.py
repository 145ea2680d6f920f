"""TLS and SASL through Spark: `format("moldau")` as source and sink, with the options that Spark's own connector takes.

What the block reader does with each of them is in test_blocks_security.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.spark.topic_sink.exactly_once import ExactlyOnceTask, TaskFailed, TaskIdentity, Transactions
from moldau.spark.topic_sink.markers import MarkerUnreadable
from moldau.spark.topic_sink.options import SinkOptions
from moldau.spark.topic_sink.rows import Cells, Rows
from moldau.spark.topic_sink.sending import NotDelivered, Outlet
from spark.secured import USERS, Secured, secured_broker
from spark.sink_readers import committed
from spark.source_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAAS = "org.apache.kafka.common.security"
Options = dict[str, str]


@pytest.fixture(scope="module")
def secured(requires_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as secured:
        yield secured


def tls(secured: Secured) -> Options:
    return {
        "kafka.bootstrap.servers": secured.tls,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.certificates.trust_store),
    }


def mutual_tls(secured: Secured) -> Options:
    return tls(secured) | {
        "kafka.bootstrap.servers": secured.mutual_tls,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": secured.certificates.client.read_text(),
        "kafka.ssl.keystore.key": secured.certificates.client_key.read_text(),
    }


def plain(secured: Secured, password: str = USERS["alice"]) -> Options:
    login = f'{JAAS}.plain.PlainLoginModule required username="alice" password="{password}";'
    return {
        "kafka.bootstrap.servers": secured.sasl,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login,
    }


def scram_over_tls(secured: Secured) -> Options:
    name = "scram-user"
    login = f'{JAAS}.scram.ScramLoginModule required username="{name}" password="{USERS[name]}";'
    return tls(secured) | {
        "kafka.bootstrap.servers": secured.sasl_tls,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
    }


@pytest.mark.parametrize("way", [tls, mutual_tls, plain, scram_over_tls])
@pytest.mark.parametrize("exactly_once", ["true", "false"], ids=["once", "at-least-once"])
def test_a_stream_is_copied_and_a_batch_read(
    spark: SparkSession,
    secured: Secured,
    way: Callable[[Secured], Options],
    exactly_once: str,
    tmp_path: Path,
) -> None:
    topics, options = Topics(secured.plaintext), way(secured)
    source, out = f"in-{way.__name__}-{exactly_once}", f"out-{way.__name__}-{exactly_once}"
    for name in (source, out):
        topics.create(name, 2)
    topics.fill(source, range(50), 0)
    topics.fill(source, range(50, 80), 1)
    reader = spark.readStream.format("moldau").options(**options).option("subscribe", source)
    query = (
        reader.option("startingOffsets", "earliest")
        .option("progressGroup", source)
        .load()
        .select("key", "value")
        .writeStream.format("moldau")
        .options(**options)
        .option("topic", out)
        .option("exactlyOnce", exactly_once)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    expected = sorted(b"%d" % number for number in range(80))
    assert sorted(committed(secured.plaintext, out)) == expected
    read = spark.read.format("moldau").options(**options).option("subscribe", out).load()
    assert sorted(bytes(row.value) for row in read.collect()) == expected


def test_a_wrong_password_ends_a_query_with_the_brokers_words(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    Topics(secured.plaintext).create("closed")
    options = plain(secured, "wrong")
    with pytest.raises(Exception, match=r"(?i)authentication failed"):
        spark.read.format("moldau").options(**options).option("subscribe", "closed").load().collect()
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    for exactly_once in ("false", "true"):
        writer = rows.write.format("moldau").options(**options).option("topic", "closed").mode("append")
        with pytest.raises(Exception, match=r"(?i)127\.0\.0\.1.*authentication failed.*mechanism PLAIN"):
            writer.option("exactlyOnce", exactly_once).save()


REFUSED_S_MAX = 20.0
"""Far below the time-outs of what is asked, on busy cores too."""


def stranger(secured: Secured) -> Options:
    return tls(secured) | {"kafka.ssl.truststore.location": str(secured.certificates.stranger)}


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (lambda secured: plain(secured, "wrong"), r"Authentication failed.*\(SASL mechanism PLAIN\)"),
        (stranger, r"127\.0\.0\.1.*certificate verify failed"),
    ],
    ids=["password", "certificate"],
)
@pytest.mark.parametrize("exactly_once", ["true", "false"], ids=["once", "at-least-once"])
def test_a_task_that_is_not_let_in_fails_at_once_and_says_why(
    secured: Secured, way: Callable[[Secured], Options], words: str, exactly_once: str
) -> None:
    given = way(secured) | {"topic": "closed", "exactlyOnce": exactly_once}
    options = SinkOptions.of(given, streaming=True)
    rows = Rows("closed", None, Cells.of_values([b"1"]), None, None)
    began_s = time.monotonic()
    with pytest.raises((NotDelivered, MarkerUnreadable), match=words):
        if exactly_once == "true":
            ExactlyOnceTask(options, TaskIdentity("query", 0, 0)).write(iter([rows]))
        else:
            outlet = Outlet(options.producer, options.max_block_ms)
            outlet.send(rows)
            outlet.finish()
    assert time.monotonic() - began_s < REFUSED_S_MAX


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (lambda secured: plain(secured, "wrong"), "Authentication failed"),
        (stranger, "certificate verify failed"),
    ],
    ids=["password", "certificate"],
)
def test_a_producer_that_is_not_let_in_does_not_wait_for_its_transactions(
    secured: Secured, way: Callable[[Secured], Options], words: str
) -> None:
    """Where the marker's clients were let in before."""
    options = SinkOptions.of(way(secured) | {"topic": "closed", "exactlyOnce": "true"}, streaming=True)
    transactions = Transactions(options, "refused", "refused")
    began_s = time.monotonic()
    with pytest.raises(TaskFailed, match=f"init_transactions failed.*{words}"):
        transactions.init()
    assert time.monotonic() - began_s < REFUSED_S_MAX
    transactions.close()
