"""The data of a real Apache Kafka moves to Moldau and back, and every client reads the same all the way.

One story, told once for the module: Kafka writes, stops; `moldau import`; Moldau serves, takes new records, stops;
Kafka's dump tool reads what lies there; Kafka starts again on Moldau's partition folders. An idempotent producer
lives through all of it. The tests look at what was seen on the way.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from bench.apache_kafka import Distribution, KafkaServer
from bench.server import MoldauServer, Server
from interop.clients import CLIENTS, CODECS, Message, Received
from interop.clients.confluent import Confluent

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KAFKA_SETTINGS = {
    "node.id": 3,
    "log.cleaner.backoff.ms": 100,
    "metadata.log.max.record.bytes.between.snapshots": 2000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (1, {"segment.bytes": "1048576", "retention.ms": "-1"}),
    "spread": (2, {"max.message.bytes": "2000000"}),
    "trimmed": (1, {}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compacted": (
        1,
        {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"},
    ),
    "payments": (1, {}),
    "gone": (2, {}),
}
READ_BY_ALL = ("codecs", "spread", "trimmed", "stamped")
COMPLAINTS = re.compile(
    r"isvalid: false|invalid bytes|Mismatches|Non-consecutive|Index is corrupt|Exception|out of order|Found timestamp",
    re.IGNORECASE,
)
SECOND_MS = 1000


@dataclass
class View:
    """What clients see of a cluster."""

    messages: dict[tuple[str, str], list[Received]] = field(default_factory=dict)
    """By client and topic, of partition 0."""
    compacted: list[Received] = field(default_factory=list)
    """Read by one client at once: a broker may compact again at any time."""
    uncommitted: list[bytes | None] = field(default_factory=list)
    """The values of payments, with the aborted ones."""
    committed_only: list[bytes | None] = field(default_factory=list)
    """The values of payments that read_committed shows."""
    watermarks: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    offset_at: dict[str, int] = field(default_factory=dict)
    topics: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Ids and numbers of partitions."""
    configs: dict[str, dict[str, str | None]] = field(default_factory=dict)
    committed: int = -1
    """The offset of the group `readers` in codecs."""


@dataclass
class Story:
    kafka: View
    moldau: View
    moldau_later: View
    kafka_again: View
    folders: list[Path]
    """Kafka's log.dirs, as they were when it first stopped."""
    broker_folder: Path
    """Moldau's data folder after its stop, and its dumps by Kafka's tool."""
    dumps: dict[str, str]
    report: dict[str, Any]
    """What `moldau import --json` printed."""
    while_running: str
    after_a_kill: str
    """What an import said then."""


def read_to_end(address: str, topic: str, isolation: str = "read_uncommitted") -> list[Received]:
    """Partition 0 from its first offset on."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "by-hand",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    first, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    consumer.assign([TopicPartition(topic, 0, first)])
    found = []
    while True:
        message = consumer.poll(20)
        assert message is not None, f"{topic} does not end"
        if message.error():
            break
        headers = tuple((name, value or b"") for name, value in message.headers() or ())
        found.append(
            Received(message.value(), message.key(), headers, message.timestamp()[1], message.offset() or 0)
        )
    consumer.close()
    return found


def look(address: str, when_ms: int) -> View:
    view = View()
    reference = Confluent(address)
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_topics(TopicCollection(list(reference.topics())))
    for name, future in described.items():
        topic = future.result()
        view.topics[name] = (str(topic.topic_id), len(topic.partitions))
    for name, (_, partitions) in view.topics.items():
        view.watermarks.update({(name, p): reference.watermarks(name, p) for p in range(partitions)})
        if not name.startswith("__"):
            configs = reference.describe_configs(name)
            view.configs[name] = {key: configs[key] for key in TOPICS[name][1]}
    for name in READ_BY_ALL:
        view.offset_at[name] = reference.offset_at(name, when_ms)
        count = len(read_to_end(address, name))
        first, _ = view.watermarks[name, 0]
        for client in clients_for(name):
            view.messages[client, name] = CLIENTS[client](address).consume(name, offset=first, count=count)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "log_level": 0})
    (place,) = consumer.committed([TopicPartition("codecs", 0)], timeout=20)
    view.committed = place.offset
    consumer.close()
    view.compacted = read_to_end(address, "compacted")
    view.uncommitted = [message.value for message in read_to_end(address, "payments")]
    committed = read_to_end(address, "payments", "read_committed")
    view.committed_only = [message.value for message in committed]
    return view


def clients_for(topic: str) -> list[str]:
    """All; the Java tool, which takes seconds to start, for one topic."""
    left_out = set() if topic == "codecs" else {"java-tools"}
    if shutil.which("kcat") is None and os.environ.get("CI") != "true":
        left_out.add("kcat")
    return [name for name in CLIENTS if name not in left_out]


def fill(address: str, reference: Confluent) -> int:
    """Write what Kafka is to leave behind; a time that lies within `codecs`."""
    now_ms = int(time.time() * 1000)
    for index, codec in enumerate(CODECS):
        messages = [
            Message(
                os.urandom(3000).hex().encode() if number % 3 else f"{codec} {number}".encode(),
                None if number % 2 else b"key %d" % number,
                (("trace", b"%d" % number), ("empty", b"")) if number % 4 else (),
                now_ms - 60 * SECOND_MS + index * SECOND_MS + number,
            )
            for number in range(150)
        ]
        reference.produce("codecs", messages, codec=codec, idempotent=index % 2 == 0)
    reference.produce("spread", [Message(b"second %d" % n) for n in range(20)], partition=1)
    reference.produce("trimmed", [Message(b"value %d" % n) for n in range(50)])
    reference.produce("stamped", [Message(b"at %d" % n, timestamp_ms=n) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_records([TopicPartition("trimmed", 0, 30)])[TopicPartition("trimmed", 0, 30)].result()
    admin.delete_topics(["gone"])["gone"].result()
    admin.create_partitions([NewPartitions("spread", 3)])["spread"].result()
    for number in range(12):
        again = [Message(b"%d" % (number * 10 + k), b"key %d" % k) for k in range(10)]
        reference.produce("compacted", [Message(b"stays", b"once %d" % number), *again])
        time.sleep(0.12)  # older than segment.ms: the next batch begins a new segment
    wait_until(lambda: len(read_to_end(address, "compacted")) < 70, "Kafka does not compact")
    return now_ms - 60 * SECOND_MS + 2 * SECOND_MS + 50


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.3)


def pay(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "payer", "log_level": 0})
    producer.init_transactions()
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.produce("payments", b"%d %s" % (number, end.__name__.encode()))
        producer.flush()
        end()


def commit_offset(address: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("codecs", 0, offset)], asynchronous=False)
    consumer.close()


class Survivor:
    """An idempotent producer that knows nothing of the moves."""

    def __init__(self, address: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
                "message.timeout.ms": 60_000,
            }
        )
        self._sent = 0

    def send(self, count: int) -> None:
        failed: list[object] = []
        for _ in range(count):
            self._producer.produce(
                "spread",
                b"survivor %d" % self._sent,
                partition=0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            self._sent += 1
        assert self._producer.flush(60) == 0
        assert not failed


def run_moldau(*arguments: object) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("moldau")
    return subprocess.run(
        [script, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def moldau(*arguments: object) -> str:
    done = run_moldau(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refusal(folders: Sequence[Path]) -> str:
    done = run_moldau("import", *sources(folders, "--from"), "--dry-run")
    assert done.returncode == 1, done.stdout
    return done.stderr


def sources(folders: Sequence[Path], option: str) -> list[object]:
    return [word for folder in folders for word in (option, folder)]


def dump_all(kafka: Distribution, folder: Path) -> dict[str, str]:
    """Everything in a data folder as Kafka's tool reads it, by suffix."""
    dumps = {}
    for suffix, options in {
        ".log": ("--deep-iteration", "--print-data-log"),
        ".index": ("--index-sanity-check",),
        ".timeindex": ("--index-sanity-check",),
        ".snapshot": (),
        ".txnindex": (),
    }.items():
        files = ",".join(str(path) for path in sorted(folder.glob(f"*-*/*{suffix}")))
        assert files, suffix
        dumps[suffix] = kafka.run("dump-log", *options, "--files", files, timeout_s=120).stdout
    return dumps


@pytest.fixture(scope="module")
def story(requires_kafka: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("story")
    folders = [place / "kafka" / name for name in ("a", "b")]
    log_dirs = ",".join(map(str, folders))
    kafka = KafkaServer(place / "server", {**KAFKA_SETTINGS, "log.dirs": log_dirs})
    address = kafka.bootstrap_servers
    with kafka:
        admin = AdminClient({"bootstrap.servers": address})
        made = [NewTopic(name, count, 1, config=configs) for name, (count, configs) in TOPICS.items()]
        for future in admin.create_topics(made).values():
            future.result()
        when_ms = fill(address, Confluent(address))
        pay(address)
        commit_offset(address, 123)
        survivor = Survivor(address)
        survivor.send(50)
        seen_at_kafka = look(address, when_ms)
        while_running = refusal(folders)
    as_stopped = [place / "stopped" / folder.name for folder in folders]
    for folder, copy in zip(folders, as_stopped, strict=True):
        shutil.copytree(folder, copy)

    server = MoldauServer(place / "moldau", port=kafka.port)
    report = moldau("import", *sources(folders, "--from"), "--data", server.data, "--json")
    broker_folder = server.data / "broker-3"
    with server:
        seen_at_moldau = look(address, when_ms)
        survivor.send(50)
        commit_offset(address, 456)
        reference = Confluent(address)
        for codec in CODECS:
            messages = [Message(os.urandom(3000).hex().encode(), b"new") for _ in range(150)]
            reference.produce("codecs", messages, codec=codec, idempotent=True)
        reference.produce("compacted", [Message(b"new", b"key 3"), Message(None, b"key 4")])
        seen_later = look(address, when_ms)
        assert server.stop()
    dumps = dump_all(requires_kafka, broker_folder)

    for folder in folders:
        for partition in folder.glob("*-*"):
            if (broker_folder / partition.name).is_dir():
                shutil.rmtree(partition)
                shutil.copytree(broker_folder / partition.name, partition)
    with kafka:
        survivor.send(50)
        seen_again = look(address, when_ms)
        kafka.kill()
    after_a_kill = refusal(folders)
    yield Story(
        seen_at_kafka,
        seen_at_moldau,
        seen_later,
        seen_again,
        as_stopped,
        broker_folder,
        dumps,
        json.loads(report),
        while_running,
        after_a_kill,
    )


def test_topics_keep_their_ids_partitions_and_settings(story: Story) -> None:
    assert story.moldau.topics == story.kafka.topics
    assert story.moldau.configs == story.kafka.configs
    assert set(story.kafka.topics) == {*TOPICS, "__consumer_offsets", "__transaction_state"} - {"gone"}
    assert story.moldau.topics["spread"][1] == 3


def test_every_client_reads_what_it_read_at_kafka(story: Story) -> None:
    assert story.kafka.messages
    for (client, topic), before in story.kafka.messages.items():
        assert before, (client, topic)
        assert story.moldau.messages[client, topic] == before, (client, topic)


def test_offsets_begin_end_and_are_found_by_time_as_before(story: Story) -> None:
    assert story.moldau.watermarks == story.kafka.watermarks
    assert story.moldau.offset_at == story.kafka.offset_at
    assert story.moldau.watermarks["trimmed", 0] == (30, 50)
    assert story.moldau.offset_at["codecs"] == 350  # 150 of each codec; it lies in the third


def test_a_compacted_topic_keeps_its_gaps(story: Story) -> None:
    offsets = [message.offset for message in story.moldau.compacted]
    assert len(offsets) < offsets[-1] - offsets[0] + 1
    assert set(story.moldau.compacted) <= set(story.kafka.compacted)
    assert latest(story.moldau.compacted) == latest(story.kafka.compacted)
    assert len(latest(story.moldau.compacted)) == 22


def test_uncommitted_readers_see_all_records_of_transactions_and_no_markers(story: Story) -> None:
    assert story.moldau.uncommitted == story.kafka.uncommitted
    assert story.kafka.uncommitted == [
        b"0 commit_transaction",
        b"1 abort_transaction",
        b"2 commit_transaction",
        b"3 abort_transaction",
    ]
    assert story.moldau.watermarks["payments", 0] == (0, 8)


def test_committed_readers_see_committed_records_only(story: Story) -> None:
    for view in (story.kafka, story.moldau, story.moldau_later, story.kafka_again):
        assert view.committed_only == [b"0 commit_transaction", b"2 commit_transaction"]


def test_committed_offsets_of_groups_come_along(story: Story) -> None:
    assert story.kafka.committed == story.moldau.committed == 123
    assert story.kafka_again.committed == story.moldau_later.committed == 456


def test_several_segments_of_several_folders_came_over(story: Story) -> None:
    assert story.report["node_id"] == 3
    assert story.report["partitions"] == sum(count for _, count in story.kafka.topics.values())
    assert len(list(story.broker_folder.glob("codecs-0/*.log"))) >= 3
    used = [folder for folder in story.folders if any(folder.glob("*-*/partition.metadata"))]
    assert len(used) == 2


def test_an_idempotent_producer_goes_on_through_both_moves(story: Story) -> None:
    for view, count in ((story.kafka, 50), (story.moldau_later, 100), (story.kafka_again, 150)):
        values = [message.value for message in view.messages["confluent-kafka", "spread"]]
        assert values == [b"survivor %d" % number for number in range(count)]
    spread = part_of(story.dumps[".log"], "spread-0")
    ids = set(re.findall(r"producerId: (\d+) producerEpoch: (\d+)", spread))
    assert len(ids) == 1
    sequences = [int(n) for n in re.findall(r"^\| offset: .* sequence: (\d+)", spread, re.MULTILINE)]
    assert sequences == list(range(100))


def part_of(dump: str, partition: str) -> str:
    parts = re.split(r"^Dumping ", dump, flags=re.MULTILINE)
    return "".join(part for part in parts if f"/{partition}/" in part.partition("\n")[0])


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot", ".txnindex"])
def test_kafkas_dump_tool_reads_what_moldau_went_on_with(story: Story, suffix: str) -> None:
    dump = story.dumps[suffix]
    complaint = COMPLAINTS.search(dump)
    assert complaint is None, dump[max(0, complaint.start() - 300) : complaint.end() + 300]
    files = list(story.broker_folder.glob(f"*-*/*{suffix}"))
    assert dump.count("Dumping ") == len(files)
    if suffix == ".log":
        offsets = [int(n) for n in re.findall(r"^\| offset: (\d+)", part_of(dump, "codecs-0"), re.MULTILINE)]
        assert offsets == list(range(1500))
        epochs = re.findall(r"partitionLeaderEpoch: (\d+)", part_of(dump, "codecs-0"))
        assert epochs == sorted(epochs, key=int)
        assert epochs[0] < epochs[-1], "Moldau leads in an epoch of its own"


def test_kafka_starts_on_partitions_that_moldau_wrote(story: Story) -> None:
    again, later = story.kafka_again, story.moldau_later
    assert again.topics == later.topics
    assert again.watermarks["codecs", 0] == (0, 1500)
    assert again.offset_at["codecs"] == later.offset_at["codecs"]
    for (client, topic), messages in later.messages.items():
        assert again.messages[client, topic][: len(messages)] == messages, (client, topic)
    assert set(again.compacted) <= set(later.compacted)
    assert latest(again.compacted) == latest(later.compacted)
    assert latest(again.compacted)[b"key 3"] == b"new"
    assert b"key 4" not in latest(again.compacted)


def latest(messages: Sequence[Received]) -> dict[bytes | None, bytes | None]:
    """The last value of each key that was not deleted."""
    last = {message.key: message.value for message in messages}
    return {key: value for key, value in last.items() if value is not None}


def test_a_running_kafka_is_left_alone(story: Story) -> None:
    assert "is in use by a running broker" in story.while_running


def test_a_killed_kafka_is_to_be_stopped_cleanly_first(story: Story) -> None:
    assert "Kafka was not stopped cleanly" in story.after_a_kill


class BrokerServer(Server):
    """`moldau broker` on folders that were Kafka's."""

    name = "Moldau"

    def __init__(self, folder: Path, config: Path) -> None:
        super().__init__(folder)
        self._config = config

    def command(self) -> Sequence[str]:
        script = Path(sys.executable).with_name("moldau")
        return [
            str(script),
            "broker",
            "--config",
            str(self._config),
            "--set",
            f"listeners=PLAINTEXT://:{self.port}",
        ]


def test_an_import_in_place_serves_kafkas_own_folders(story: Story, tmp_path: Path) -> None:
    folders = [tmp_path / folder.name for folder in story.folders]
    for source, folder in zip(story.folders, folders, strict=True):
        shutil.copytree(source, folder)
    moldau("import", *sources(folders, "--in-place"))
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=3\nlog.dirs={folders[0]},{folders[1]}\n")
    with BrokerServer(tmp_path / "server", config) as server:
        for name in READ_BY_ALL:
            read = read_to_end(server.bootstrap_servers, name)
            assert read == story.kafka.messages["confluent-kafka", name], name
        compacted = read_to_end(server.bootstrap_servers, "compacted")
        assert latest(compacted) == latest(story.kafka.compacted)
        Confluent(server.bootstrap_servers).produce("codecs", [Message(b"in place")])
        last = read_to_end(server.bootstrap_servers, "codecs")[-1]
        assert (last.value, last.offset) == (b"in place", 750)
        assert server.stop()
