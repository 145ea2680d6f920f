"""Consumer groups of the newer protocol (KIP-848) with real clients: confluent-kafka and Kafka's own, alone, mixed with
members of the classic protocol, and on the way from one protocol to the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from bench.apache_kafka import Distribution
from bench.server import MoldauServer
from interop.party import Member, Party

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-groups-848")]

PARTITIONS = 6
SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 3_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.assignment.interval.ms": 0,
}
"""Sessions short enough for a test that waits for their end."""
KIND = "confluent"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MoldauServer]:
    with MoldauServer(tmp_path_factory.mktemp("groups-848"), SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def target(server: MoldauServer) -> str:
    return server.bootstrap_servers


@pytest.fixture(scope="module")
def make_topic(target: str) -> Callable[..., str]:
    admin, numbers = AdminClient({"bootstrap.servers": target}), itertools.count()

    def make(label: str = "topic", partitions: int = PARTITIONS) -> str:
        name = f"{label}-{next(numbers)}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()


@pytest.fixture
def party(target: str, topic: str) -> Iterator[Party]:
    with Party(target, topic, f"{topic}-group") as party:
        yield party


def produce(target: str, topic: str, count: int, *, first: int = 0) -> set[str]:
    """Numbered messages, spread over the partitions."""
    producer = Producer({"bootstrap.servers": target})
    for number in range(first, first + count):
        producer.produce(topic, f"message {number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return {f"message {number}" for number in range(first, first + count)}


def described(target: str, group: str) -> tuple[ConsumerGroupState, ConsumerGroupType]:
    admin = AdminClient({"bootstrap.servers": target})
    shown = admin.describe_consumer_groups([group])[group].result(30)
    return shown.state, shown.type


# ---- alone ----------------------------------------------------------------------------------------------------


def test_members_share_the_partitions_and_go_on_where_the_group_was(
    party: Party, target: str, topic: str
) -> None:
    old = produce(target, topic, 60)
    first = party.join(KIND, protocol="consumer")
    party.wait_read(old)
    second = party.join(KIND, protocol="consumer")
    party.wait_shared(PARTITIONS, first, second)
    assert described(target, f"{topic}-group") == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    first.leave()
    party.wait_shared(PARTITIONS, second)
    second.leave()
    assert described(target, f"{topic}-group")[0] is ConsumerGroupState.EMPTY
    third = party.join(KIND, protocol="consumer")
    new = produce(target, topic, 30, first=60)
    party.wait_until(lambda: new <= third.values, "the new messages to be read")
    assert third.values == new


def test_what_a_killed_member_had_goes_to_the_others(party: Party, target: str, topic: str) -> None:
    members = [party.join(KIND, protocol="consumer") for _ in range(3)]
    party.wait_shared(PARTITIONS)
    wanted = produce(target, topic, 60)
    members[0].kill()
    wanted |= produce(target, topic, 60, first=60)
    party.wait_shared(PARTITIONS, *members[1:])
    party.wait_read(wanted)


def test_a_member_that_was_paused_past_its_session_comes_back(party: Party, target: str, topic: str) -> None:
    first, second = (party.join(KIND, protocol="consumer") for _ in range(2))
    party.wait_shared(PARTITIONS)
    first.pause()
    party.wait_until(lambda: len(second.owned) == PARTITIONS, "the other to have all")
    wanted = produce(target, topic, 60)
    party.wait_read(wanted)
    first.resume()
    party.wait_shared(PARTITIONS, first, second)


def test_a_static_member_that_is_started_again_keeps_its_partitions(party: Party) -> None:
    first = party.join(KIND, protocol="consumer", instance="one")
    second = party.join(KIND, protocol="consumer", instance="two")
    party.wait_shared(PARTITIONS)
    had, rounds = set(first.owned), second.assignments
    first.leave()
    again = party.join(KIND, protocol="consumer", instance="one")
    party.wait_until(lambda: again.owned == had, "the same partitions")
    assert second.assignments == rounds


def test_new_partitions_and_topics_that_fit_an_expression_are_read(
    target: str, make_topic: Callable[..., str]
) -> None:
    first = make_topic("fits", 2)
    properties = {"bootstrap.servers": target, "group.id": "expression", "group.protocol": "consumer"}
    consumer = Consumer(properties)
    consumer.subscribe(["^fits-.*"])

    def wait_for(wanted: set[tuple[str, int]]) -> None:
        for _ in range(600):
            consumer.poll(0.1)
            if {(place.topic, place.partition) for place in consumer.assignment()} == wanted:
                return
        pytest.fail(f"{consumer.assignment()} is not {wanted}")

    try:
        wait_for({(first, 0), (first, 1)})
        admin = AdminClient({"bootstrap.servers": target})
        admin.create_partitions([NewPartitions(first, 3)])[first].result(30)
        wait_for({(first, 0), (first, 1), (first, 2)})
        second = make_topic("fits", 1)
        wait_for({(first, 0), (first, 1), (first, 2), (second, 0)})
    finally:
        consumer.close()


# ---- Kafka's own clients --------------------------------------------------------------------------------------


def test_java_and_librdkafka_members_share_one_group(
    party: Party, target: str, topic: str, requires_kafka: Distribution
) -> None:
    java = party.join_java(requires_kafka, protocol="consumer")
    party.wait_shared(PARTITIONS, java)
    other = party.join(KIND, protocol="consumer")
    party.wait_shared(PARTITIONS, java, other)
    party.wait_read(produce(target, topic, 60))
    java.kill()
    party.wait_shared(PARTITIONS, other)
    party.wait_read(produce(target, topic, 60, first=60))


def test_the_console_consumer_and_the_tools_show_the_group(
    target: str, topic: str, requires_kafka: Distribution
) -> None:
    group = f"{topic}-console"

    def run(tool: str, *arguments: str) -> str:
        return requires_kafka.run(tool, "--bootstrap-server", target, *arguments).stdout

    produce(target, topic, 12)
    arguments = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "12"]
    printed = run("console-consumer", *arguments, "--command-property", "group.protocol=consumer")
    assert len(printed.splitlines()) == 12
    state = run("consumer-groups", "--describe", "--state", "--group", group)
    assert re.search(rf"{group}\s.*\sEmpty\s+0\s*$", state, re.MULTILINE), state
    listed = run("consumer-groups", "--list", "--type", "consumer")
    assert re.search(rf"^{group}\s+Consumer\s*$", listed, re.MULTILINE), listed
    with Party(target, topic, group) as party:
        party.join(KIND, protocol="consumer")
        party.wait_shared(PARTITIONS)
        state = run("consumer-groups", "--describe", "--state", "--verbose", "--group", group)
        assert re.search(rf"{group}\s.*\suniform\s+Stable\s+\d+\s+\d+\s+1\s*$", state, re.MULTILINE), state
        shown = run("consumer-groups", "--describe", "--members", "--verbose", "--group", group)
        assert f"{topic}:0,1,2,3,4,5" in shown


def test_kafkas_decoder_reads_every_record(
    server: MoldauServer, target: str, topic: str, requires_kafka: Distribution
) -> None:
    group = f"{topic}-decoded"
    with Party(target, topic, group) as party:
        party.join(KIND, protocol="consumer")
        party.wait_shared(PARTITIONS)
        party.join(KIND)  # of the classic protocol
        party.wait_shared(PARTITIONS)
        files = [str(path) for path in logs(server) if group.encode() in path.read_bytes()]
        flags = ["--offsets-decoder", "--print-data-log"]
        printed = requires_kafka.run("dump-log", "--files", ",".join(files), *flags).stdout
    kinds = set(re.findall(rf'key: \{{"type":"(\d+)","data":\{{"groupId":"{group}"', printed))
    assert kinds == {"3", "5", "6", "7", "8"}
    assert '"classicMemberMetadata":{' in printed
    assert "isvalid: false" not in printed


def logs(server: MoldauServer) -> list[Path]:
    return sorted(server.data.rglob("__consumer_offsets-*/*.log"))


# ---- between the protocols ------------------------------------------------------------------------------------


def test_members_of_both_protocols_share_one_group(party: Party, target: str, topic: str) -> None:
    for protocol in ("classic", "consumer", "classic"):
        party.join(KIND, protocol=protocol)
    party.wait_shared(PARTITIONS)
    party.wait_read(produce(target, topic, 60))
    assert described(target, f"{topic}-group")[1] is ConsumerGroupType.CONSUMER


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_a_group_rolls_to_the_newer_protocol_and_back_while_it_reads(
    party: Party, target: str, topic: str, assignor: str
) -> None:
    group = f"{topic}-group"
    wanted: set[str] = set()

    def go_on() -> None:
        wanted.update(produce(target, topic, 30, first=len(wanted)))
        party.wait_shared(PARTITIONS)
        party.wait_read(wanted)

    def roll(members: list[Member], protocol: str) -> list[Member]:
        rolled = []
        for member in members:
            member.leave()
            rolled.append(party.join(KIND, assignor=assignor, protocol=protocol))
            go_on()
        return rolled

    members = [party.join(KIND, assignor=assignor) for _ in range(2)]
    go_on()
    assert described(target, group)[1] is ConsumerGroupType.CLASSIC
    members = roll(members, "consumer")
    assert described(target, group)[1] is ConsumerGroupType.CONSUMER
    roll(members, "classic")
    assert described(target, group)[1] is ConsumerGroupType.CLASSIC
    read = [(partition, offset) for member in party.members for partition, offset, _ in member.messages]
    assert len(wanted) == len(set(read))


def test_offsets_are_committed_by_members_only_while_there_are_any(
    party: Party, target: str, topic: str
) -> None:
    group = f"{topic}-group"
    party.join(KIND, protocol="consumer")
    party.wait_shared(PARTITIONS)
    outsider = Consumer({"bootstrap.servers": target, "group.id": group})
    try:
        with pytest.raises(Exception, match=r"UNKNOWN_MEMBER_ID|Unknown member"):
            outsider.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    finally:
        outsider.close()
