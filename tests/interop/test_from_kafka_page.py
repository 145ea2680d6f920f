"""docs/from-kafka.md, gone through as it stands: its commands are typed in the page's order, with the folders and
addresses of the test in place of the page's, and Kafka's own classes in place of its scripts."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench import apache_kafka
from bench.apache_kafka import Artifact, Distribution, KafkaServer
from bench.server import MoldauServer, Server
from cluster.shown import ROOT, Page, parse
from cluster.support import wait_until
from interop.test_import import BrokerServer, read_to_end
from moldau.config.broker import BrokerConfig

PAGE = Page("docs/from-kafka.md")
SCRIPTS = {"kafka-get-offsets.sh": "get-offsets", "kafka-consumer-groups.sh": "consumer-groups"}
TIMEOUT_S = 120
NODE_ID = 3
COMMAND = [sys.executable, "-c", "from moldau.cli import main; main()"]
MIRROR = "org.apache.kafka.connect.mirror.MirrorMaker"


def block_with(text: str) -> list[str]:
    """The lines of the one block in which a text stands."""
    (block,) = (block for kind, block in PAGE.blocks if not kind and text in block)
    return [line for line in block.splitlines() if line]


def sample_file(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.touch()
    return file


@pytest.mark.parametrize("line", sorted(set(PAGE.commands())))
def test_every_command_of_the_page_is_one_that_moldau_takes(line: str, tmp_path: Path) -> None:
    line = line.replace("server.properties", str(sample_file(tmp_path)))
    parse(re.sub(r"/var/lib/\w+", str(tmp_path), line))


def test_the_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"`(tests/\S+\.py)`", PAGE.text)
    assert len(named) == 2
    assert all((ROOT / name).is_file() for name in named)


def test_what_the_page_says_is_refused_is_refused() -> None:
    """A server.properties that asks for what would be unsafe without effect."""
    with pytest.raises(ValueError, match="none of Moldau's"):
        BrokerConfig.parse(
            {"node.id": "1", "log.dirs": "/x", "authorizer.class.name": "a.b.StandardAuthorizer"}
        )


class Move:
    """One node's way to Moldau and back, on one port."""

    def __init__(self, kafka: Distribution, place: Path) -> None:
        self._kafka = kafka
        self.place = place
        self.server = KafkaServer(place / "kafka", {"node.id": NODE_ID, "offsets.topic.num.partitions": 2})
        self.address = self.server.bootstrap_servers
        self.broker: Server | None = None

    def put(self, text: str) -> str:
        """The test's places in the page's words."""
        places = {
            "/var/lib/kafka": str(self.server.data),
            "/var/lib/moldau": str(self.place / "moldau"),
            "server.properties": str(self.server.folder / "server.properties"),
            "localhost:9092": self.address,
        }
        for shown, there in places.items():
            text = text.replace(shown, there)
        return text

    def type(self, line: str) -> None:
        command, _, rest = self.put(line).partition(" ")
        if command in SCRIPTS:
            arguments, _, file = rest.partition(" > ")
            printed = self._kafka.run(SCRIPTS[command], *arguments.split(), timeout_s=TIMEOUT_S).stdout
            (self.place / file).write_text(printed)
        elif command == "kafka-server-stop.sh":
            assert self.server.stop()
        elif command == "kafka-server-start.sh":
            self.server.start()
        elif line.startswith("moldau broker"):
            self.broker = ByThePage(self.place / "broker", rest.split(), port=self.server.port)
            self.broker.start()
        else:
            run(self.put(line), self.place)

    def stop_moldau(self) -> None:
        assert self.broker is not None
        assert self.broker.stop()

    def kill(self) -> None:
        self.server.kill()
        if self.broker is not None:
            self.broker.kill()


class ByThePage(Server):
    """`moldau` with the arguments of the page."""

    name = "Moldau"

    def __init__(self, folder: Path, arguments: Sequence[str], *, port: int) -> None:
        super().__init__(folder, port=port)
        self._arguments = arguments

    def command(self) -> Sequence[str]:
        return [*COMMAND, *self._arguments]


def run(script: str, folder: Path) -> str:
    """A line of the page, by the shell; `moldau` is that of this tree."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    moldau = tools / "moldau"
    moldau.write_text(f'#!/bin/sh\nexec {COMMAND[0]} -c "{COMMAND[2]}" "$@"\n')
    moldau.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"PATH={tools}:$PATH; {script}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def produce(address: str, start: int, stop: int, topic: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
    for number in range(start, stop):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def numbers(address: str, topic: str = "orders") -> list[int]:
    return [int(message.value or b"-1") for message in read_to_end(address, topic)]


def commit(address: str, offset: int, group: str = "shop") -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    place = TopicPartition("orders", 0, offset)
    with contextlib.closing(consumer):
        wait_until(lambda: is_committed(consumer, place), TIMEOUT_S, "the group's coordinator")


def is_committed(consumer: Consumer, place: TopicPartition) -> bool:
    """A coordinator that has just been made says at first that it is none."""
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException as refused:
        assert refused.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
        return False
    return True


def committed(address: str, group: str = "shop") -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    with contextlib.closing(consumer):
        (place,) = consumer.committed([TopicPartition("orders", 0)], timeout=TIMEOUT_S)
        offset: int = place.offset
        return offset


def create(address: str, topic: str = "orders", partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


@pytest.fixture
def move(requires_kafka: Distribution, tmp_path: Path) -> Iterator[Move]:
    made = Move(requires_kafka, tmp_path)
    yield made
    made.kill()


def filled(move: Move) -> None:
    move.server.start()
    create(move.address)
    produce(move.address, 0, 1000)
    commit(move.address, 400)


@pytest.mark.interop
@pytest.mark.slow
def test_one_node_moves_with_its_folders_is_compared_and_goes_back(move: Move) -> None:
    filled(move)
    for line in block_with("offsets.before\n"):
        move.type(line)
    for line in block_with("moldau import --from"):
        move.type(line)
    for line in block_with("moldau broker"):
        move.type(line)
    for line in block_with("diff"):
        move.type(line)
    before = (move.place / "offsets.before").read_text()
    assert "orders:0:1000" in before
    assert "400" in (move.place / "groups.before").read_text()

    produce(move.address, 1000, 1500)
    commit(move.address, 1200)
    move.stop_moldau()
    *copying, start = block_with("for p in")
    run(move.put("\n".join(copying)), move.place)
    move.type(start)
    assert numbers(move.address) == list(range(1500))
    assert committed(move.address) == 1200
    produce(move.address, 1500, 1600)
    assert numbers(move.address) == list(range(1600))


@pytest.mark.interop
@pytest.mark.slow
def test_kafka_takes_its_folders_back_after_an_import_in_place(move: Move) -> None:
    filled(move)
    assert move.server.stop()
    run(f"moldau import --in-place {move.server.data}", move.place)
    config = move.place / "own.properties"
    config.write_text(f"node.id={NODE_ID}\nlog.dirs={move.server.data}\noffsets.topic.replication.factor=1\n")
    broker = BrokerServer(move.place / "broker", config)
    with broker:
        produce(broker.bootstrap_servers, 1000, 1500)
        commit(broker.bootstrap_servers, 1200)
        assert broker.stop()
    run(move.put("\n".join(block_with("mv __cluster_metadata"))), move.place)
    move.server.start()
    assert numbers(move.address) == list(range(1500))
    assert committed(move.address) == 1200


class MirrorMaker:
    """Kafka's own, until the end of a `with` block."""

    def __init__(self, kafka: Distribution, settings: Path) -> None:
        mirror = apache_kafka.cache_folder() / apache_kafka.VERSION / "mirror"
        if not mirror.is_dir():
            names = ("connect-mirror", "connect-mirror-client")
            wanted = [Artifact("org.apache.kafka", name, apache_kafka.VERSION, alone=True) for name in names]
            apache_kafka.fetch(mirror, wanted, "MirrorMaker")
        command = kafka.command(MIRROR, str(settings))
        place = command.index("-cp") + 1
        command[place] = f"{command[place]}:{mirror}/*"
        self._command = command
        self.log = settings.with_suffix(".log")

    def __enter__(self) -> MirrorMaker:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            assert self._process.poll() is None, self.log.read_text()[-3000:]
            with contextlib.suppress(Exception):
                return condition()
            return False

        wait_until(holds, TIMEOUT_S, what)


@pytest.mark.interop
@pytest.mark.slow
def test_mirror_maker_copies_topics_and_offsets_of_groups_while_both_serve(
    requires_kafka: Distribution, tmp_path: Path
) -> None:
    (settings,) = (block for kind, block in PAGE.blocks if kind == "properties")
    with KafkaServer(tmp_path / "kafka") as kafka, MoldauServer(tmp_path / "moldau") as moldau:
        old, new = kafka.bootstrap_servers, moldau.bootstrap_servers
        create(old, partitions=2)
        produce(old, 0, 1000)
        commit(old, 400)
        file = tmp_path / "mm2.properties"
        file.write_text(settings.replace("kafka1:9092", old).replace("moldau1:9092", new))
        with MirrorMaker(requires_kafka, file) as mirror:
            mirror.wait(lambda: numbers(new) == list(range(1000)), "the records to come over")
            produce(old, 1000, 1500)  # it goes on
            mirror.wait(lambda: numbers(new) == list(range(1500)), "what came later")
            commit(old, 900)
            mirror.wait(lambda: committed(new) > 400, "the offsets of the group")
            place = committed(new)
            assert 400 < place <= 900, "where it stopped or before it, never behind it"
        found = AdminClient({"bootstrap.servers": new, "log_level": 0}).list_topics(timeout=TIMEOUT_S).topics
        assert len(found["orders"].partitions) == 2
        own = {name for name in found if name != "orders" and not name.startswith("__")}
        assert all(re.fullmatch(r"mm2-.*|.*heartbeats|.*\.checkpoints\.internal", name) for name in own), own
