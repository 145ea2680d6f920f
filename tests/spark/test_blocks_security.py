"""The block reader against Apache Kafka's listeners with TLS and SASL, and beside confluent-kafka's consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.spark.blocks.client_library import LibraryReader
from moldau.spark.blocks.client_settings import client_of
from moldau.spark.blocks.errors import DataLoss, ReadFailed, SecurityFailed, TopicRecreated
from moldau.spark.blocks.read import read_split
from moldau.spark.blocks.settings import ReadSettings, Split
from spark.secured import USERS, Secured, secured_broker
from spark.topics import COLUMNS, TIMEOUT_S, new_producer, produce_batch, produce_values, schema_of

VALUES = [b"%d" % number for number in range(2000)]


@pytest.fixture(scope="module")
def secured(requires_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as secured:
        admin = AdminClient({"bootstrap.servers": secured.plaintext})
        admin.create_topics([NewTopic("t", 1, config={"retention.ms": "-1"})])["t"].result(TIMEOUT_S)
        produce_values(secured.plaintext, "t", VALUES)
        yield secured


def read(bootstrap: str, config: dict[str, str], timeout_ms: int = 30_000) -> list[bytes]:
    settings = ReadSettings(bootstrap, schema_of("value"), config, timeout_ms=timeout_ms)
    return [
        value
        for batch in read_split(settings, Split("t", 0, 0, len(VALUES)))
        for value in batch["value"].to_pylist()
    ]


def tls_config(secured: Secured, **more: str) -> dict[str, str]:
    dotted = {name.replace("_", "."): value for name, value in more.items()}
    return {"security.protocol": "ssl", "ssl.ca.location": str(secured.certificates.authority), **dotted}


def sasl_config(mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": USERS[user] if password is None else password,
    }


def test_tls_by_a_certificate_that_the_reader_trusts(secured: Secured) -> None:
    assert read(secured.tls, tls_config(secured)) == VALUES
    text = secured.certificates.authority.read_text()
    assert read(secured.tls, {"security.protocol": "ssl", "ssl.ca.pem": text}) == VALUES
    unchecked = {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}
    assert read(secured.tls, unchecked) == VALUES


def test_a_broker_whose_certificate_nobody_trusts_is_refused_at_once(secured: Secured) -> None:
    config = {"security.protocol": "ssl", "ssl.ca.location": str(secured.certificates.stranger)}
    with pytest.raises(SecurityFailed, match="CERTIFICATE_VERIFY_FAILED"):
        read(secured.tls, config, timeout_ms=600_000)


def test_tls_with_a_certificate_on_both_sides(secured: Secured) -> None:
    certificate, key = secured.certificates.client, secured.certificates.client_key
    by_path = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    by_text = {"ssl.certificate.pem": certificate.read_text(), "ssl.key.pem": key.read_text()}
    for own in (by_path, by_text):
        assert read(secured.mutual_tls, tls_config(secured) | own) == VALUES
    with pytest.raises(ReadFailed):
        read(secured.mutual_tls, tls_config(secured), timeout_ms=500)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_by_name_and_password(secured: Secured, mechanism: str) -> None:
    for user in USERS:
        assert read(secured.sasl, sasl_config(mechanism, user)) == VALUES
    both = tls_config(secured) | sasl_config(mechanism) | {"security.protocol": "SASL_SSL"}
    assert read(secured.sasl_tls, both) == VALUES


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_at_once(secured: Secured, mechanism: str) -> None:
    with pytest.raises(SecurityFailed, match="refuses the login"):
        read(secured.sasl, sasl_config(mechanism, password="wrong"), timeout_ms=600_000)


def test_files_that_are_not_there_are_named(secured: Secured) -> None:
    with pytest.raises(SecurityFailed, match=r"kafka\.ssl\.\* cannot be used"):
        read(secured.tls, {"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"})


OAUTH = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=alice",
}


def test_what_only_the_client_library_knows_goes_through_it(secured: Secured) -> None:
    assert client_of(OAUTH) is None
    assert read(secured.sasl, OAUTH) == VALUES


def test_the_client_librarys_refusals_are_errors_too(secured: Secured) -> None:
    wrong = {**sasl_config("PLAIN", password="wrong"), "ssl.providers": "default"}
    assert client_of(wrong) is None
    with pytest.raises(SecurityFailed):
        read(secured.sasl, wrong, timeout_ms=60_000)


def by_library(settings: ReadSettings, split: Split) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for columns in LibraryReader(settings, split).columns(settings.schema.names):
        rows += pa.RecordBatch.from_pydict(columns).to_pylist()
    return rows


def by_own_reader(settings: ReadSettings, split: Split) -> list[dict[str, Any]]:
    return [row for batch in read_split(settings, split) for row in batch.to_pylist()]


@pytest.mark.parametrize("read_committed", [False, True], ids=["uncommitted", "committed"])
def test_both_ways_give_the_same_rows(secured: Secured, read_committed: bool) -> None:
    topic = f"same-{read_committed}".lower()
    admin = AdminClient({"bootstrap.servers": secured.plaintext})
    admin.create_topics([NewTopic(topic, 1, config={"retention.ms": "-1"})])[topic].result(TIMEOUT_S)
    for codec in Codec:
        records = [Record(0, -1, None, None), Record(1, 1000, b"k", b"v", (("h", b"1"), ("h", None)))]
        produce_batch(secured.plaintext, topic, build_batch(records, codec=codec))
    producer = new_producer(secured.plaintext, transactional_id=topic)
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"in %d" % number, partition=0)
        assert producer.flush(TIMEOUT_S) == 0  # an abort would take it back before it is sent
        producer.commit_transaction(TIMEOUT_S) if number % 2 else producer.abort_transaction(TIMEOUT_S)
    names = [name for name in COLUMNS if name not in ("topic", "partition")]
    settings = ReadSettings(
        secured.plaintext, schema_of(*names), read_committed=read_committed, timeout_ms=30_000
    )
    for first, after in [(0, 22), (3, 22), (0, 21), (5, 13), (21, 22), (10, 11)]:
        split = Split(topic, 0, first, after)
        assert by_library(settings, split) == by_own_reader(settings, split), split
    to_latest = Split(topic, 0, 3, 5, to_latest=True)
    found = by_library(settings, to_latest)
    assert found == by_own_reader(settings, to_latest)
    assert found[-1]["value"] == b"in 5"
    place = TopicPartition(topic, 0, 4)
    admin.delete_records([place])[place].result(TIMEOUT_S)
    from_earliest = Split(topic, 0, 0, 9, from_earliest=True)
    assert by_library(settings, from_earliest) == by_own_reader(settings, from_earliest)
    assert by_library(settings, from_earliest)[0]["offset"] == 4


def test_both_ways_know_data_loss_and_recreated_topics(secured: Secured) -> None:
    strict = ReadSettings(secured.plaintext, schema_of("value", "offset"), timeout_ms=30_000)
    for reading in (by_library, by_own_reader):
        with pytest.raises(DataLoss, match="the offsets 5000 to 5009 are gone: the log has 0 to 1999 now"):
            reading(strict, Split("t", 0, 5000, 5010))
        with pytest.raises(TopicRecreated):
            reading(strict, Split("t", 0, 0, 5, UUID(int=7)))
