"""One table: what clients do with a broker × the clients. Partitions are assigned by hand, not by groups."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from interop.clients import CLIENTS, Client, Message, Refused
from stored import stored_headers

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-matrix")]

TIMESTAMP_MS = int(time.time()) * 1000 - 3_600_000  # young enough for retention
COUNT = 12


def those_that(capability: str) -> list[str]:
    return [name for name, client in CLIENTS.items() if getattr(client, capability)]


every_client = pytest.mark.parametrize("client", CLIENTS, indirect=True)
every_admin = pytest.mark.parametrize("client", those_that("administers"), indirect=True)


@pytest.fixture(scope="module")
def dated(clients: Callable[[str], Client], new_topic: Callable[..., str]) -> str:
    """A topic of COUNT messages, ten seconds apart, in three batches."""
    topic = new_topic("dated")
    for first in range(0, COUNT, COUNT // 3):
        numbers = range(first, first + COUNT // 3)
        messages = [Message(str(n).encode(), b"n", timestamp_ms=TIMESTAMP_MS + n * 10_000) for n in numbers]
        clients("confluent-kafka").produce(topic, messages)
    return topic


@every_client
@pytest.mark.parametrize("offset", [0, 5, COUNT - 1])
def test_reads_from_any_offset(client: Client, dated: str, offset: int) -> None:
    received = client.consume(dated, offset=offset, count=COUNT - offset)
    assert [(m.offset, m.value) for m in received] == [(n, str(n).encode()) for n in range(offset, COUNT)]


@every_client
def test_learns_the_first_and_the_next_offset(client: Client, dated: str) -> None:
    assert client.watermarks(dated) == (0, COUNT)


@every_client
@pytest.mark.parametrize(
    ("seconds", "offset"),
    [(-1, 0), (0, 0), (45, 5), (50, 5), (110, 11), (111, COUNT)],
    ids=["before all", "the first", "between two", "exactly one", "the last", "after all"],
)
def test_finds_the_offset_of_a_time(client: Client, dated: str, seconds: int, offset: int) -> None:
    assert client.offset_at(dated, TIMESTAMP_MS + seconds * 1000) == offset


@every_client
def test_idempotent_messages_are_stored_once_and_in_order(
    client: Client, target: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("idempotent")
    values = [str(n).encode() for n in range(200)]
    client.produce(topic, [Message(value, b"k") for value in values], idempotent=True)
    assert [m.value for m in client.consume(topic, offset=0, count=200)] == values
    batches = stored_headers(target, topic)
    assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


@pytest.mark.parametrize("client", those_that("chooses_partitions"), indirect=True)
def test_writes_to_the_partition_it_chose(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic("partitions", partitions=3)
    for partition in (2, 0):
        client.produce(topic, [Message(str(partition).encode())], partition=partition)
    assert [client.watermarks(topic, partition)[1] for partition in range(3)] == [1, 0, 1]
    assert client.consume(topic, offset=0, count=1, partition=2)[0].value == b"2"


@every_client
def test_a_topic_that_is_not_there_is_created_by_producing_to_it(
    client: Client, clients: Callable[[str], Client], topic_names: Callable[[str], str]
) -> None:
    topic = topic_names(f"auto-{client.name}")
    client.produce(topic, [Message(b"first", b"k")])
    assert [m.value for m in client.consume(topic, offset=0, count=1)] == [b"first"]
    clients("confluent-kafka").delete(topic)


@every_admin
def test_creates_lists_and_deletes_topics(client: Client, topic_names: Callable[[str], str]) -> None:
    topic = topic_names(f"admin-{client.name}")
    client.create(topic, partitions=3, configs={"retention.ms": "1234567"})
    wait_until(lambda: client.topics().get(topic) == 3)
    assert client.describe_configs(topic)["retention.ms"] == "1234567"
    client.delete(topic)
    wait_until(lambda: topic not in client.topics())
    client.create(topic)
    assert client.watermarks(topic) == (0, 0)
    client.delete(topic)


@every_client
def test_lists_the_topics(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic("listed", partitions=4)
    wait_until(lambda: client.topics().get(topic) == 4)


@pytest.mark.parametrize("client", those_that("alters_incrementally"), indirect=True)
def test_changes_a_config_and_leaves_the_others(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic("incremental", retention_ms="1000", segment_bytes="2097152")
    client.alter_configs(topic, put={"cleanup.policy": "compact,delete", "retention.ms": "2000"})
    configs = client.describe_configs(topic)
    assert configs["cleanup.policy"] == "compact,delete"
    assert (configs["retention.ms"], configs["segment.bytes"]) == ("2000", "2097152")
    client.alter_configs(topic, put={}, remove=["retention.ms"])
    configs = client.describe_configs(topic)
    assert configs["retention.ms"] == "604800000"
    assert (configs["segment.bytes"], configs["cleanup.policy"]) == ("2097152", "compact,delete")


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"], indirect=True)
def test_replacing_configs_resets_what_is_not_named(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic("replaced", retention_ms="1000", segment_bytes="2097152")
    client.replace_configs(topic, {"retention.ms": "3000"})
    configs = client.describe_configs(topic)
    assert (configs["retention.ms"], configs["segment.bytes"]) == ("3000", "1073741824")


def test_kafka_python_replaces_configs_with_all_that_were_set(
    clients: Callable[[str], Client], new_topic: Callable[..., str]
) -> None:
    """It asks for what is set and sends it along, so that the old request changes one key only."""
    client, topic = clients("kafka-python"), new_topic("filled", segment_bytes="2097152")
    client.replace_configs(topic, {"retention.ms": "3000"})
    configs = client.describe_configs(topic)
    assert (configs["retention.ms"], configs["segment.bytes"]) == ("3000", "2097152")


REFUSALS = {
    "a name with a space": (
        "no such name",
        {},
        ErrorCode.invalid_topic_exception,
        "'no such name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    "an unknown config": (
        "",
        {"no.such.config": "1"},
        ErrorCode.invalid_config,
        "Unknown topic config name: no.such.config",
    ),
    "a bad value": (
        "",
        {"retention.ms": "soon"},
        ErrorCode.invalid_config,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
    "a value out of range": (
        "",
        {"segment.bytes": "1"},
        ErrorCode.invalid_config,
        "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
    ),
}


@pytest.mark.parametrize(
    "client",
    [name for name in those_that("administers") if not CLIENTS[name].checks_configs_itself],
    indirect=True,
)
@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_topic_is_refused_with_the_reason(
    client: Client, case: str, topic_names: Callable[[str], str]
) -> None:
    name, configs, code, reason = REFUSALS[case]
    with pytest.raises(Refused) as refused:
        client.create(name or topic_names("refused"), configs=configs)
    assert refused.value.code == code
    assert reason in refused.value.message.replace("\\", "")


@every_admin
def test_a_topic_that_exists_is_not_created_again(client: Client, dated: str) -> None:
    with pytest.raises(Refused) as refused:
        client.create(dated)
    assert refused.value.code == ErrorCode.topic_already_exists
    assert f"Topic '{dated}' already exists." in refused.value.message


@every_admin
def test_a_bad_change_of_a_config_is_refused_and_changes_nothing(
    client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("refusing")
    bad = {"cleanup.policy": "shred"}
    with pytest.raises(Refused) as refused:
        if client.alters_incrementally:
            client.alter_configs(topic, put=bad)
        else:
            client.replace_configs(topic, bad)
    assert refused.value.code == ErrorCode.invalid_config
    assert "Invalid value shred for configuration cleanup.policy" in refused.value.message
    assert client.describe_configs(topic)["cleanup.policy"] == "delete"


@every_client
def test_a_message_over_the_limit_is_refused(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic("small", max_message_bytes="1000")
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Message(b"x" * 2000, b"k")])
    assert refused.value.code == ErrorCode.message_too_large
    client.produce(topic, [Message(b"x" * 800, b"k")])
    assert client.watermarks(topic) == (0, 1)


@every_client
def test_log_append_time_is_the_brokers_time(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic("appended", message_timestamp_type="LogAppendTime")
    before_ms = time.time() * 1000
    client.produce(
        topic, [Message(b"x", b"k", timestamp_ms=TIMESTAMP_MS if client.sets_timestamps else None)]
    )
    after_ms = time.time() * 1000
    (message,) = client.consume(topic, offset=0, count=1)
    assert message.timestamp_ms and before_ms - 1 <= message.timestamp_ms <= after_ms


@every_client
@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
def test_a_topics_own_codec_is_readable(
    client: Client, codec: str, target: str, clients: Callable[[str], Client], new_topic: Callable[..., str]
) -> None:
    topic = new_topic("recompressed", compression_type=codec)
    values = [b"words, words, words, " * 30 + str(n).encode() for n in range(20)]
    clients("confluent-kafka").produce(topic, [Message(value, b"k") for value in values], codec="lz4")
    assert [m.value for m in client.consume(topic, offset=0, count=20)] == values
    kept = {"gzip": 1, "zstd": 4, "uncompressed": 0}[codec]
    assert {batch.attributes & 7 for batch in stored_headers(target, topic)} == {kept}


def wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
