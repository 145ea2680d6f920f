"""Kafka's own tools on Moldau's groups: what they show, what they change, and the records that they read, those of
transactions too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.apache_kafka import Distribution
from bench.server import MoldauServer
from interop.party import Party

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-group-tools")]

FORMATTERS = "org.apache.kafka.tools.consumer"
NOTE = "noted\0"
"""librdkafka sends the metadata of an offset with the zero that ends a text in C."""


@pytest.fixture(scope="module")
def server(requires_kafka: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MoldauServer]:
    folder: Path = tmp_path_factory.mktemp("groups")
    with MoldauServer(folder, {"offsets.topic.num.partitions": 3}) as server:
        yield server


@pytest.fixture
def run(requires_kafka: Distribution, server: MoldauServer) -> Callable[..., str]:
    def run_tool(tool: str, *arguments: str) -> str:
        done = requires_kafka.run(tool, "--bootstrap-server", server.bootstrap_servers, *arguments)
        return done.stdout

    return run_tool


def make_group(server: MoldauServer, topic: str, *, offset: int = 3) -> str:
    """A simple group: an offset in each of two partitions that hold five messages."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0
    group = f"{topic}-group"
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": group})
    places = [TopicPartition(topic, index, offset, metadata="noted") for index in range(2)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    return group


def objects(text: str) -> list[dict[str, object]]:
    """The formatters print JSON objects without anything between them."""
    decoder, position, found = json.JSONDecoder(), 0, []
    while (position := text.find("{", position)) >= 0:
        item, position = decoder.raw_decode(text, position)
        found.append(item)
    return found


def new_topic(run: Callable[..., str], name: str) -> str:
    run("topics", "--create", "--topic", name, "--partitions", "2")
    return name


# ---- the tool for groups ------------------------------------------------------------------------------------


def test_consumer_groups_lists_describes_resets_and_deletes(
    run: Callable[..., str], server: MoldauServer
) -> None:
    group = make_group(server, new_topic(run, "tool"))
    assert group in run("consumer-groups", "--list").split()
    described = run("consumer-groups", "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert [row[2:6] for row in rows] == [["0", "3", "5", "2"], ["1", "3", "5", "2"]]

    arguments = ("--group", group, "--reset-offsets", "--to-earliest", "--topic", "tool", "--execute")
    moved = re.findall(r"tool +(\d) +(\d+)", run("consumer-groups", *arguments))
    assert sorted(moved) == [("0", "0"), ("1", "0")]
    done = run("consumer-groups", "--group", group, "--delete-offsets", "--topic", "tool:1")
    assert re.search(r"tool +1 +Successful", done)
    assert "successful" in run("consumer-groups", "--delete", "--group", group)
    assert group not in run("consumer-groups", "--list").split()


def test_consumer_groups_shows_members_and_states(
    run: Callable[..., str], requires_kafka: Distribution, server: MoldauServer
) -> None:
    topic = new_topic(run, "members")
    with Party(server.bootstrap_servers, topic, "members-group") as party:
        member = party.join("confluent")
        party.wait_shared(2, member)
        shown = run("consumer-groups", "--describe", "--group", "members-group", "--members", "--verbose")
        assert re.search(r"members-group +confluent-0-\S+ +/127.0.0.1 +confluent-0 +2 ", shown)
        state = run("consumer-groups", "--describe", "--group", "members-group", "--state")
        assert re.search(r"members-group +\S+ +\(1\) +range +Stable +1", state)
        listed = run("consumer-groups", "--list", "--state", "stable")
        assert "members-group" in listed
        refused = requires_kafka.run(
            *("consumer-groups", "--bootstrap-server", server.bootstrap_servers),
            *("--delete", "--group", "members-group"),
            check=False,
        )
        assert "GroupNotEmptyException" in refused.stdout + refused.stderr


# ---- the records --------------------------------------------------------------------------------------------


def test_kafkas_formatters_read_the_records_of_groups(run: Callable[..., str], server: MoldauServer) -> None:
    topic = new_topic(run, "formatted")
    group = make_group(server, topic)
    with Party(server.bootstrap_servers, topic, "formatted-members") as party:
        party.join("confluent")
        party.wait_shared(2)

    def read(formatter: str) -> list[dict[str, object]]:
        arguments = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "4000")
        return objects(run("console-consumer", *arguments, "--formatter", f"{FORMATTERS}.{formatter}"))

    offsets = [item for item in read("OffsetsMessageFormatter") if item["key"]["data"]["group"] == group]  # type: ignore[index]
    assert {item["key"]["data"]["partition"] for item in offsets} == {0, 1}  # type: ignore[index]
    for item in offsets:
        value = item["value"]["data"]  # type: ignore[index]
        assert (value["offset"], value["metadata"]) == (3, NOTE)
        assert item["value"]["version"] == 4  # type: ignore[index]
    groups = [
        item["value"]["data"]  # type: ignore[index]
        for item in read("GroupMetadataMessageFormatter")
        if item["key"]["data"]["group"] == "formatted-members" and item["value"]  # type: ignore[index]
    ]
    stable = [value for value in groups if value["members"]]
    assert stable[-1]["protocolType"] == "consumer"
    assert stable[-1]["protocol"] == "range"
    assert stable[-1]["members"][0]["clientId"] == "confluent-0"


def test_kafkas_dump_tool_decodes_the_records_of_groups(
    run: Callable[..., str], requires_kafka: Distribution, server: MoldauServer
) -> None:
    group = make_group(server, new_topic(run, "dumped"))
    files = sorted(server.data.rglob("__consumer_offsets-*/*.log"))
    done = requires_kafka.run(
        "dump-log", "--files", ",".join(map(str, files)), "--offsets-decoder", "--print-data-log"
    )

    assert "isvalid: false" not in done.stdout
    keys = [line for line in done.stdout.splitlines() if f'"group":"{group}"' in line]
    assert len(keys) == 2
    assert all('"metadata":"noted' in line and '"offset":3' in line for line in keys)


def test_kafkas_dump_tool_decodes_the_records_of_transactions(
    run: Callable[..., str], requires_kafka: Distribution, server: MoldauServer
) -> None:
    topic = new_topic(run, "in-transaction")
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.commit_transaction(30)
    files = sorted(path for path in server.data.rglob("__transaction_state-*/*.log") if path.stat().st_size)
    done = requires_kafka.run(
        "dump-log", "--files", ",".join(map(str, files)), "--transaction-log-decoder", "--print-data-log"
    )

    assert "isvalid: false" not in done.stdout
    mine = [line for line in done.stdout.splitlines() if f'"transactionalId":"{topic}"' in line]
    assert '"transactionStatus":0' in mine[0]
    assert any(f'"transactionPartitions":[{{"topic":"{topic}","partitionIds":[0]}}]' in line for line in mine)
