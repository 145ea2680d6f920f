"""The sink's options and rows: Java's defaults, what goes together, checksums that tell rows apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from moldau.spark.topic_sink.options import SinkOptions
from moldau.spark.topic_sink.rows import Cells, HeaderCells, Headers, Rows


def parse(*, streaming: bool = False, **options: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    return SinkOptions.of(
        given | {name.replace("_", "."): value for name, value in options.items()}, streaming=streaming
    )


def test_the_producer_has_the_defaults_of_kafkas_java_client() -> None:
    assert parse().producer == {
        "bootstrap.servers": "127.0.0.1:1",
        "delivery.timeout.ms": "120000",
        "enable.idempotence": "true",
        "message.max.bytes": "1048576",
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": "32768",
        "queue.buffering.max.messages": "100000",
    }


@pytest.mark.parametrize(
    "options",
    [
        {"kafka_acks": "1"},
        {"kafka_acks": "0"},
        {"kafka_retries": "0"},
        {"kafka_max_in_flight_requests_per_connection": "6"},
    ],
)
def test_what_excludes_idempotence_turns_it_off_unless_it_is_asked_for(options: dict[str, str]) -> None:
    assert "enable.idempotence" not in parse(**options).producer
    with pytest.raises(ValueError, match=r"^Kafka options are not usable: "):
        parse(kafka_enable_idempotence="true", **options)
    with pytest.raises(ValueError, match=r"^Kafka options are not usable: "):
        parse(exactlyOnce="true", **options)


def test_a_transaction_may_take_five_minutes_and_a_record_never_longer_than_it() -> None:
    config = parse(exactlyOnce="true").producer
    assert (config["transaction.timeout.ms"], config["delivery.timeout.ms"]) == ("300000", "120000")
    config = parse(exactlyOnce="true", kafka_transaction_timeout_ms="10000").producer
    assert (config["transaction.timeout.ms"], config["delivery.timeout.ms"]) == ("10000", "10000")


def test_idle_connections_of_a_transactional_producer_are_closed_soon_unless_it_is_said_otherwise() -> None:
    assert "connections.max.idle.ms" not in parse().producer
    assert parse(exactlyOnce="true").producer["connections.max.idle.ms"] == "5000"
    said = parse(exactlyOnce="true", kafka_connections_max_idle_ms="60000").producer
    assert said["connections.max.idle.ms"] == "60000"


def test_a_batch_write_has_the_application_and_version_that_it_is_given_or_an_id_of_its_own() -> None:
    named = parse(exactlyOnce="true", txnAppId="app", txnVersion="7")
    assert (named.application, named.version) == ("app", 7)
    first, second = parse(exactlyOnce="true"), parse(exactlyOnce="true")
    assert first.application and first.application != second.application
    assert parse(exactlyOnce="true", streaming=True).application is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"txnAppId": "app", "txnVersion": "1"}, "need exactlyOnce=true"),
        ({"txnAppId": "app", "exactlyOnce": "true"}, "must be given together"),
        ({"txnVersion": "1", "exactlyOnce": "true"}, "must be given together"),
        (
            {"txnAppId": "a", "txnVersion": "-1", "exactlyOnce": "true"},
            "must be a number from 0 on, not '-1'",
        ),
        ({"replayCheck": "some"}, "'replayCheck' must be content, rows or none, not 'some'"),
        ({"kafka_max_block_ms": "soon"}, "'max.block.ms' must be a number, not 'soon'"),
        ({"kafka_bootstrap_servers": ""}, "'kafka.bootstrap.servers' must be specified"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse(**options)
    assert sentence in str(refusal.value)


def test_a_stream_has_its_own_application() -> None:
    with pytest.raises(ValueError, match="are for batch writes"):
        parse(streaming=True, exactlyOnce="true", txnAppId="app", txnVersion="1")


def test_tokens_that_only_confluent_kafkas_client_gets_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be aws_iam: the sink uses librdkafka by itself"):
        SinkOptions.of(
            {
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "kafka.sasl.oauthbearer.metadata.authentication.type": "aws_iam",
            },
            streaming=False,
        )


def rows(
    values: Sequence[bytes | None] = (b"1",),
    topics: str | list[str] = "t",
    keys: Sequence[bytes | None] | None = None,
    headers: list[Headers | None] | None = None,
    partitions: list[int] | None = None,
) -> Rows:
    return Rows(
        topics,
        None if keys is None else Cells.of_values(keys),
        Cells.of_values(values),
        None if headers is None else HeaderCells.of_values(headers),
        partitions,
    )


def test_a_checksum_tells_rows_apart_by_all_of_their_columns() -> None:
    different = [
        rows(),
        rows(values=[b"2"]),
        rows(values=[None]),
        rows(values=[b""]),
        rows(keys=[b"k"]),
        rows(keys=[None]),
        rows(topics=["other"]),
        rows(partitions=[1]),
        rows(partitions=[2]),
        rows(headers=[[("h", b"1")]]),
        rows(headers=[[("h", None)]]),
    ]
    assert len({found.checksum() for found in different}) == len(different)


def test_a_checksum_is_the_same_in_another_order() -> None:
    some = rows(values=[b"1", b"2", b"3"], keys=[b"a", None, b""])
    turned = rows(values=[b"3", b"1", b"2"], keys=[b"", b"a", None])
    crossed = rows(values=[b"3", b"2", b"1"], keys=[b"", b"a", None])
    assert some.checksum() == turned.checksum() != crossed.checksum()
