"""Spark on a cluster of ours that wants TLS and a password: `format("moldau")` and Spark's own `format("kafka")`, with
one and the same options, as source and sink, in batches and streams. Who is not let in is told why, and soon.

What each security protocol and mechanism does, on Apache Kafka, is in test_spark_security and test_blocks_security.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from interop.secured import Papers
from moldau.spark.blocks.client_settings import client_of
from moldau.spark.client_options import client_config, kafka_options
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

USER, PASSWORD = "alice", 'alice\'s, = "gr\\üße"'
REFUSED_S_MAX = 20.0
VALUES = [b"%d" % number for number in range(60)]
THEIRS, OURS = "kafka", "moldau"
Options = dict[str, str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(secure=True) as cluster:
        cluster.create_user(USER, PASSWORD)
        cluster.create_topic("numbers", 2)
        fill(cluster, "numbers", VALUES)
        yield cluster


def fill(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    producer = Producer(cluster.client_settings())
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % 2)
    assert producer.flush(30) == 0


def prefixed(settings: dict[str, object]) -> Options:
    return {f"kafka.{name}": str(value) for name, value in settings.items()}


def java(cluster: Cluster, password: str = PASSWORD) -> Options:
    """As Kafka's Java client, and so Spark's own connector, wants it."""
    return prefixed(cluster.client_settings("java", user=USER, password=password))


def librdkafka(cluster: Cluster, password: str = PASSWORD) -> Options:
    return prefixed(cluster.client_settings(user=USER, password=password))


def values_of(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def batch(spark: SparkSession, form: str, options: Options, topic: str) -> DataFrame:
    return spark.read.format(form).options(**options).option("subscribe", topic).load()


def stream_into(
    spark: SparkSession, forms: tuple[str, str], options: Options, topic: str, checkpoint: Path
) -> DataStreamWriter:
    source, sink = forms
    reader = spark.readStream.format(source).options(**options).option("subscribe", "numbers")
    rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
    writer = rows.writeStream.format(sink).options(**options).option("topic", topic)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


@pytest.mark.parametrize("words", [java, librdkafka])
def test_a_batch_is_read_by_fetches_of_our_own(
    spark_with_connector: SparkSession, cluster: Cluster, words: Callable[[Cluster], Options]
) -> None:
    options = words(cluster)
    client = client_of(client_config(kafka_options(options), "consumer"))
    assert client is not None
    assert client.tls is not None
    assert client.sasl is not None
    assert values_of(batch(spark_with_connector, OURS, options, "numbers")) == sorted(VALUES)


def test_a_trust_store_that_keytool_made_serves_both(
    spark_with_connector: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """It is PKCS12 whatever its name is, and Java's type for it is JKS where none is given."""
    options, store, password = java(cluster), tmp_path / "trust.jks", "changeit"
    certificate, _ = options.pop("kafka.ssl.truststore.location"), options.pop("kafka.ssl.truststore.type")
    make = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", certificate]
    subprocess.run([*make, "-keystore", store, "-storepass", password], check=True, capture_output=True)
    options |= {"kafka.ssl.truststore.location": str(store), "kafka.ssl.truststore.password": password}
    for form in (OURS, THEIRS):
        assert values_of(batch(spark_with_connector, form, options, "numbers")) == sorted(VALUES)


def test_sparks_own_connector_reads_and_writes_a_batch(
    spark_with_connector: SparkSession, cluster: Cluster
) -> None:
    options = java(cluster)
    cluster.create_topic("theirs", 2)
    rows = batch(spark_with_connector, THEIRS, options, "numbers").select("key", "value")
    assert values_of(rows) == sorted(VALUES)
    rows.write.format(THEIRS).options(**options).option("topic", "theirs").mode("append").save()
    assert values_of(batch(spark_with_connector, OURS, options, "theirs")) == sorted(VALUES)


@pytest.mark.parametrize("exactly_once", ["true", "false"], ids=["once", "at-least-once"])
def test_the_topic_sink_writes_a_batch(
    spark_with_connector: SparkSession, cluster: Cluster, exactly_once: str
) -> None:
    topic = f"written-{exactly_once}"
    cluster.create_topic(topic, 2)
    rows = spark_with_connector.sql("select string(id) as value from range(60)")
    writer = rows.write.format(OURS).options(**java(cluster)).option("topic", topic)
    writer.option("exactlyOnce", exactly_once).mode("append").save()
    assert values_of(batch(spark_with_connector, OURS, java(cluster), topic)) == sorted(VALUES)


@pytest.mark.parametrize(
    ("forms", "exactly_once"),
    [((OURS, OURS), "true"), ((OURS, OURS), "false"), ((THEIRS, THEIRS), None)],
    ids=["ours-once", "ours-at-least-once", "sparks-own"],
)
def test_a_stream_goes_from_topic_to_topic(
    spark_with_connector: SparkSession,
    cluster: Cluster,
    forms: tuple[str, str],
    exactly_once: str | None,
    tmp_path: Path,
) -> None:
    topic = f"streamed-{forms[1]}-{exactly_once}"
    cluster.create_topic(topic, 2)
    writer = stream_into(spark_with_connector, forms, java(cluster), topic, tmp_path)
    if exactly_once is not None:
        writer = writer.option("exactlyOnce", exactly_once)
    assert writer.start().awaitTermination(120)
    committed = java(cluster) | {"kafka.isolation.level": "read_committed"}
    for form in (OURS, THEIRS):
        assert values_of(batch(spark_with_connector, form, committed, topic)) == sorted(VALUES)


def test_the_page_on_secured_clusters_is_true(
    spark_with_connector: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a folder as `moldau up --secure` leaves it."""
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    section = page.partition("### From a cluster with TLS and passwords\n")[2].partition("\n### ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    settings, folder = cluster.client_settings(), tmp_path / "moldau-data" / "security"
    assert settings["sasl.username"] == "admin"
    folder.mkdir(parents=True)
    shutil.copy(settings["ssl.ca.location"], folder / "ca.crt")
    (folder / "admin.password").write_text(f"{settings['sasl.password']}\n")
    for topic in ("orders", "copies"):
        cluster.create_topic(topic, 2)
    fill(cluster, "orders", VALUES)
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {"spark": spark_with_connector}
    exec(block.replace("localhost:9092", cluster.bootstrap_servers), known)
    assert values_of(batch(spark_with_connector, OURS, java(cluster), "copies")) == sorted(VALUES)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of an authority that signed nothing here."""
    return Papers(tmp_path_factory.mktemp("stranger")).ca


def shut_out(cluster: Cluster, stranger: Path) -> dict[str, tuple[Options, str]]:
    """Options that do not let in, and what is said of them."""
    untrusted = java(cluster) | {"kafka.ssl.truststore.location": str(stranger)}
    return {
        "password": (java(cluster, "wrong"), "Authentication failed"),
        "certificate": (untrusted, "certificate verify failed"),
    }


@pytest.mark.parametrize("reason", ["password", "certificate"])
@pytest.mark.parametrize("what", ["batch", "stream", "once", "at-least-once"])
def test_who_is_not_let_in_is_told_why_and_soon(
    spark_with_connector: SparkSession,
    cluster: Cluster,
    stranger: Path,
    reason: str,
    what: str,
    tmp_path: Path,
) -> None:
    options, words = shut_out(cluster, stranger)[reason]
    began_s = time.monotonic()
    with pytest.raises(Exception, match=f"(?i){words}") as refusal:
        if what == "batch":
            batch(spark_with_connector, OURS, options, "numbers").collect()
        elif what == "stream":
            writer = stream_into(spark_with_connector, (OURS, OURS), options, "numbers", tmp_path)
            writer.start().awaitTermination(REFUSED_S_MAX * 2)
        else:
            rows = spark_with_connector.sql("select 'v' as value")
            sink = rows.write.format(OURS).options(**options).option("topic", "numbers").mode("append")
            sink.option("exactlyOnce", str(what == "once").lower()).save()
    assert time.monotonic() - began_s < REFUSED_S_MAX
    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize(
    ("reason", "words"), [("password", "Authentication failed"), ("certificate", "SSL handshake failed")]
)
def test_sparks_own_connector_is_told_too(
    spark_with_connector: SparkSession, cluster: Cluster, stranger: Path, reason: str, words: str
) -> None:
    """Of the login in the broker's words, of the certificate in Java's."""
    options, _ = shut_out(cluster, stranger)[reason]
    began_s = time.monotonic()
    with pytest.raises(Exception, match=words):
        batch(spark_with_connector, THEIRS, options, "numbers").collect()
    assert time.monotonic() - began_s < REFUSED_S_MAX


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"kafka.ssl.keystore.location": "/me.jks"},
            "not supported with the type JKS: give a PKCS12 file, or PEM",
        ),
        (
            {"kafka.sasl.login.class": "x.Login"},
            "'sasl.login.class' is not supported: it is made for Kafka's Java",
        ),
        ({"kafka.sasl.jaas.config": "x.Module required;"}, "is understood for one login module of Kafka's"),
    ],
)
def test_what_only_java_can_do_is_refused_in_a_sentence(
    spark_with_connector: SparkSession, cluster: Cluster, more: Options, sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        batch(spark_with_connector, OURS, java(cluster) | more, "numbers").collect()
