"""The commands that talk to a cluster, against a broker in this process."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from confluent_kafka import Producer, Uuid

from cluster.support import wait_until
from moldau.cli import doctor
from moldau.cli.app import run
from moldau.cli.topic import id_text
from moldau.testing import Cluster
from terminal import CTRL_D, ENTER, Terminal

TIMEOUT_S = 60
COMMAND = [sys.executable, "-c", "from moldau.cli import main; main()"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


class Done(NamedTuple):
    stdout: bytes
    stderr: bytes


class Cli:
    """Runs `moldau` in this process, which spares the start of an interpreter for each command."""

    def __init__(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capture = capture
        monkeypatch.setenv("NO_COLOR", "1")
        self.use(cluster)

    def use(self, cluster: Cluster) -> None:
        self._monkeypatch.setenv("MOLDAU_BOOTSTRAP", cluster.bootstrap_servers)

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Done:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            run(list(arguments))
        done = Done(*self._capture.readouterr())
        assert ended.value.code == code, done
        assert b"Traceback" not in done.stderr
        assert b"%3|" not in done.stderr, "librdkafka's own log leaks"
        return done

    def out(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = self.run(*arguments, stdin=stdin)
        return done.stdout

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return json.loads(self.out(*arguments, "--json", stdin=stdin))

    def error(self, *arguments: str, code: int, stdin: bytes = b"") -> str:
        done = self.run(*arguments, stdin=stdin, code=code)
        text = done.stderr.decode()
        assert text.startswith("error: ")
        return text


@pytest.fixture
def cli(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(cluster, monkeypatch, capfdbinary)


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_").partition("[")[0][:80]
    cluster.create_topic(name, partitions=3)
    return name


# ---- topics ---------------------------------------------------------------------------------------------------


def first_offsets(cli: Cli, topic: str) -> list[int]:
    (described,) = cli.json("topic", "describe", topic)
    return [partition["first_offset"] for partition in described["partitions"]]


def test_a_topic_is_trimmed_up_to_an_offset_a_time_and_the_end(cli: Cli, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(6))
    for partition in ("0", "1"):
        cli.run("message", "produce", topic, "--partition", partition, stdin=lines)
    shown = cli.out("topic", "trim", topic, "--before", "2", "--partition", "0").decode()
    assert shown.splitlines()[1].split() == ["0", "0", "2", "2"]
    assert shown.endswith(f"{topic}: trimmed\n")
    assert first_offsets(cli, topic) == [2, 0, 0]
    assert b"Nothing" in cli.run("topic", "trim", topic, "--before", "-1h").stderr
    assert first_offsets(cli, topic) == [2, 0, 0]
    assert cli.json("topic", "trim", topic, "--before", "end", "--yes") == [
        {"partition": 0, "first_offset": 6, "messages_deleted": 4},
        {"partition": 1, "first_offset": 6, "messages_deleted": 6},
        {"partition": 2, "first_offset": 0, "messages_deleted": 0},
    ]
    assert first_offsets(cli, topic) == [6, 6, 0]


def test_a_trim_that_cannot_be_says_why_and_deletes_nothing(cli: Cli, topic: str) -> None:
    cli.run("message", "produce", topic, "--partition", "0", stdin=b"a\nb\n")
    assert "its next offset is 2" in cli.error("topic", "trim", topic, "--before", "3", "-p", "0", code=2)
    assert "no partition 7" in cli.error("topic", "trim", topic, "--before", "end", "-p", "7", code=4)
    assert "no topic" in cli.error("topic", "trim", "absent", "--before", "end", code=4)
    cli.run("topic", "alter", topic, "--set", "cleanup.policy=compact")
    assert "policy" in cli.error("topic", "trim", topic, "--before", "end", code=1).lower()
    assert first_offsets(cli, topic) == [0, 0, 0]


def test_a_topic_lives_from_its_creation_to_its_deletion(cli: Cli) -> None:
    created = cli.json("topic", "create", "life", "--partitions", "2", "--set", "max.message.bytes=5000")
    assert created == [{"topic": "life", "status": "created"}]
    assert {"name": "life", "partitions": 2, "replication_factor": 1} in cli.json("topic", "list")
    cli.run(
        "topic",
        "alter",
        "life",
        "--partitions",
        "4",
        "--set",
        "flush.messages=9",
        "--unset",
        "max.message.bytes",
    )
    (described,) = cli.json("topic", "describe", "life")
    assert described["configs"] == {"flush.messages": "9"}
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3]
    assert described["partitions"][0] == {
        "partition": 0,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "state": "ok",
        "first_offset": 0,
        "next_offset": 0,
        "messages": 0,
    }
    assert cli.json("topic", "delete", "life") == [{"topic": "life", "status": "deleted"}]
    assert "life" not in [found["name"] for found in cli.json("topic", "list")]


def test_a_topic_id_is_written_as_kafka_writes_it() -> None:
    assert id_text(Uuid(-1, -1)) == "_____________________w"


def test_the_clusters_own_topics_are_deleted_only_when_one_insists(cli: Cli) -> None:
    text = cli.error("topic", "delete", "never-made", "__consumer_offsets", code=1)
    assert "the offsets of all groups would be lost" in text and "--yes" in text


def made(cli: Cli, *names: str) -> list[str]:
    cli.run("topic", "create", *names)
    return sorted(names)


def there(cli: Cli, pattern: str) -> list[str]:
    return [found["name"] for found in cli.json("topic", "list", pattern)]


def test_topics_are_described_and_deleted_by_patterns(cli: Cli) -> None:
    names = made(cli, "pat-1", "pat-2", "pat-10", "other-pat")
    assert [one["name"] for one in cli.json("topic", "describe", "pat-?", "other-pat")] == [
        "pat-1",
        "pat-2",
        "other-pat",
    ]
    assert [one["topic"] for one in cli.json("topic", "delete", "pat-*", "--yes")] == [
        "pat-1",
        "pat-10",
        "pat-2",
    ]
    assert there(cli, "*pat*") == ["other-pat"] and len(names) == 4


@pytest.mark.parametrize("command", ["describe", "delete", "consume"])
def test_a_pattern_that_matches_nothing_is_an_error_of_its_own(cli: Cli, command: str) -> None:
    group = "message" if command == "consume" else "topic"
    text = cli.error(group, command, "no-such-*", code=4)
    assert text.startswith("error: No topic matches 'no-such-*'.")


def test_where_nothing_is_there_to_delete_a_script_may_go_on(cli: Cli) -> None:
    assert cli.json("topic", "delete", "no-such-*", "--if-exists", "--yes") == []


def test_a_pattern_deletes_nothing_where_nobody_can_be_asked(cli: Cli) -> None:
    names = made(cli, "kept-1", "kept-2")
    text = " ".join(cli.error("topic", "delete", "kept-*", code=2).split())
    assert "The pattern would delete 2 topics: kept-1, kept-2." in text and "--yes" in text
    assert there(cli, "kept-*") == names


def test_a_pattern_shows_what_it_would_delete_and_asks_on_a_terminal(
    cli: Cli, cluster: Cluster, tmp_path: Path
) -> None:
    names = made(cli, "asked-1", "asked-2")
    for answer, code, left in (("n", 1, names), ("y", 0, [])):
        with Terminal(
            [*COMMAND, "topic", "delete", "asked-*"],
            {"MOLDAU_BOOTSTRAP": cluster.bootstrap_servers},
            tmp_path,
        ) as terminal:
            terminal.wait_for("Delete asked-1, asked-2 with all messages?", TIMEOUT_S)
            terminal.send(answer, ENTER)
            assert terminal.process.wait(TIMEOUT_S) == code
        assert there(cli, "asked-*") == left


def test_a_pattern_means_the_clusters_own_topics_only_if_it_begins_as_they_do(cli: Cli) -> None:
    cli.run("message", "produce", "own-1", "x")
    cli.run("message", "consume", "own-1", "--group", "any")
    own = "__consumer_offsets"
    assert own not in [one["name"] for one in cli.json("topic", "describe", "*")]
    assert own in [one["name"] for one in cli.json("topic", "describe", "__*")]
    assert "would be lost" in cli.error("topic", "delete", "__*", code=1)


@pytest.mark.parametrize("group", [(), ("--group", "of-all-logs")], ids=["alone", "in a group"])
def test_topics_are_read_by_a_pattern(cli: Cli, group: tuple[str, ...]) -> None:
    for name in ("logs-a", "logs-b", "logs-b-and-more", "no-logs"):
        cli.run("topic", "create", name, "--if-not-exists", "--partitions", "2")
        cli.run("message", "produce", name, "-p", "1", f"from {name}")
    lines = cli.out("message", "consume", "logs-?", "--format", "{topic}: {value}", *group).splitlines()
    assert set(lines) == {b"logs-a: from logs-a", b"logs-b: from logs-b"}
    if group:
        assert cli.out("message", "consume", "logs-?", *group) == b""


def test_the_last_message_of_each_topic_is_read_by_a_pattern(cli: Cli) -> None:
    for name in ("ends-a", "ends-b"):
        cli.run("topic", "create", name)
        cli.run("message", "produce", name, "first", f"last of {name}")
    lines = cli.out("message", "consume", "ends-*", "--from", "-1").splitlines()
    assert sorted(lines) == [b"last of ends-a", b"last of ends-b"]


def test_tables_are_plain_columns_in_a_pipe(cli: Cli, topic: str) -> None:
    lines = cli.out("topic", "list", f"{topic[:10]}*").decode().splitlines()
    assert [line.split() for line in lines] == [["TOPIC", "PARTITIONS", "REPLICAS"], [topic, "3", "1"]]
    lines = cli.out("topic", "describe", topic).decode().splitlines()
    assert lines[0].startswith(topic) and "3 partitions, replication factor 1" in lines[0]
    assert lines[-1].split() == ["2", "1", "1", "1", "0", "0", "0", "ok"]


def test_what_is_there_or_absent_already_is_fine_when_asked_so(cli: Cli, topic: str) -> None:
    assert "already exists" in cli.error("topic", "create", topic, code=1)
    assert cli.json("topic", "create", topic, "--if-not-exists")[0]["status"] == "exists"
    assert cli.json("topic", "delete", "never-made", "--if-exists")[0]["status"] == "absent"


def test_validate_only_creates_nothing(cli: Cli) -> None:
    assert cli.json("topic", "create", "validated", "--validate-only")[0]["status"] == "would be created"
    assert cli.json("topic", "list", "validated") == []


def test_one_failure_among_several_topics_fails_the_command_and_not_the_others(cli: Cli, topic: str) -> None:
    done = cli.run("topic", "create", topic, "beside-a-failure", "--json", code=1)
    assert [found["status"] for found in json.loads(done.stdout)] == ["failed", "created"]
    assert json.loads(done.stderr)["error"]["kind"] == "failed"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["topic", "describe", "no-such-topic"], 4, "There is no topic 'no-such-topic' on"),
        (["topic", "alter", "no-such-topic", "--partitions", "2"], 4, "There is no topic"),
        (["topic", "delete", "no-such-topic"], 4, "`moldau topic list` shows what is there"),
        (["message", "consume", "no-such-topic"], 4, "moldau topic create no-such-topic"),
        (["bench", "consume", "--topic", "no-such-topic"], 4, "There is no topic"),
        (["config", "get", "topic", "no-such-topic"], 4, "There is no topic"),
        (["config", "get", "broker", "7"], 4, "The brokers are: 1."),
        (["topic", "create", "a/b"], 1, "Names take letters"),
        (["topic", "create", "x", "--set", "max.message.byte=1"], 2, "Did you mean max.message.bytes"),
        (
            ["topic", "create", "x", "--set", "max.message.bytes=much"],
            2,
            "`moldau config keys max.message.bytes` says what it takes.",
        ),
        (["config", "set", "broker", "1", "num.partitions=2"], 1, "in its configuration file, or with --set"),
        (
            ["topic", "create", "x", "--replication-factor", "3"],
            1,
            "more replicas than the cluster has brokers",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_the_cluster_does_not_have_or_refuses_is_said_with_what_to_do(
    cli: Cli, arguments: list[str], code: int, said: str
) -> None:
    assert said in cli.error(*arguments, code=code)


def test_a_near_miss_of_a_topic_name_is_suggested(cli: Cli, topic: str) -> None:
    assert f"Did you mean {topic}?" in cli.error("message", "consume", topic + "s", code=4)


# ---- messages -------------------------------------------------------------------------------------------------


def test_lines_of_stdin_become_messages_and_come_back_as_lines(cli: Cli, topic: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(5000))
    sent = cli.json("message", "produce", topic, "--partition", "1", stdin=lines)
    assert sent == {
        "topic": topic,
        "messages": 5000,
        "partitions": [{"partition": 1, "first_offset": 0, "last_offset": 4999}],
    }
    assert cli.out("message", "consume", topic) == lines


def test_a_last_line_without_an_end_is_a_message_and_an_empty_line_too(cli: Cli, topic: str) -> None:
    assert cli.json("message", "produce", topic, "-p", "0", stdin=b"a\n\nb")["messages"] == 3
    assert cli.out("message", "consume", topic) == b"a\n\nb\n"
    assert cli.json("message", "produce", topic, stdin=b"")["messages"] == 0


def test_keys_headers_nulls_and_timestamps_go_out_and_come_back(cli: Cli, topic: str) -> None:
    options = ["--key-separator", ":", "--null", "NULL", "--header", "a=1", "--header", "a=2"]
    cli.run(
        "message",
        "produce",
        topic,
        *options,
        "--timestamp",
        "@1700000000000",
        "-p",
        "2",
        stdin=b"k:v\nNULL:NULL\n:\n",
    )
    messages = [json.loads(line) for line in cli.out("message", "consume", topic, "--json").splitlines()]
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    common = {"topic": topic, "partition": 2, "timestamp": 1_700_000_000_000, "headers": headers}
    assert messages == [
        common | {"offset": 0, "key": "k", "value": "v"},
        common | {"offset": 1, "key": None, "value": None},
        common | {"offset": 2, "key": "", "value": ""},
    ]
    formatted = cli.out(
        "message", "consume", topic, "--format", "{offset} {key}={value} {headers}", "--null", "-", "-n", "2"
    )
    assert formatted == b"0 k=v a=1,a=2\n1 -=- a=1,a=2\n"


def test_a_topic_is_copied_through_json_with_bytes_of_any_kind(cli: Cli, topic: str, tmp_path: Path) -> None:
    data = bytes(range(256))
    (tmp_path / "any").write_bytes(data)
    cli.run("message", "produce", topic, "--whole", "--file", str(tmp_path / "any"), "--key", "k")
    copied = cli.out("message", "consume", topic, "--json")
    cli.run("message", "produce", f"{topic}-copy", "--json-input", stdin=copied)
    assert cli.out("message", "consume", f"{topic}-copy", "--format", "{value}", "--delimiter", "") == data


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_stored_and_read(cli: Cli, cluster: Cluster, codec: str) -> None:
    name = f"codec-{codec}"
    cluster.create_topic(name)
    lines = b"all the same\n" * 2000
    cli.run("message", "produce", name, "--codec", codec, stdin=lines)
    assert cli.out("message", "consume", name) == lines


def test_an_idempotent_producer_gets_its_messages_stored(cli: Cli, topic: str) -> None:
    cli.run("message", "produce", topic, "a", "b", "--idempotent", "-p", "0")
    assert cli.out("message", "consume", topic) == b"a\nb\n"
    assert "--idempotent needs --acks all" in cli.error(
        "message", "produce", topic, "a", "--idempotent", "--acks", "1", code=2
    )


@pytest.mark.parametrize(("acks", "first_offset"), [("0", None), ("1", 0), ("all", 0)])
def test_acks_decide_who_must_have_a_message(
    cli: Cli, cluster: Cluster, acks: str, first_offset: int | None
) -> None:
    name = f"acks-{acks}"
    cluster.create_topic(name)
    sent = cli.json("message", "produce", name, "value", "--acks", acks)
    assert sent["messages"] == 1
    assert sent["partitions"][0]["first_offset"] == first_offset
    assert cli.out("message", "consume", name, "--follow", "--count", "1") == b"value\n"


def transaction(cluster: Cluster, topic: str, *values: str, commits: bool = True) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    if commits:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.flush(TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)


def messages_of(cli: Cli, topic: str) -> list[int | None]:
    (described,) = cli.json("topic", "describe", topic)
    return [partition["messages"] for partition in described["partitions"]]


def test_the_last_messages_are_messages_and_not_markers_of_transactions(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    def last(count: int, *options: str) -> list[str]:
        return cli.out("message", "consume", topic, "--from", f"-{count}", *options).decode().split()

    transaction(cluster, topic, "0", "1")
    assert (last(1), last(2), last(3)) == (["1"], ["0", "1"], ["0", "1"])
    for number in range(2, 9):
        transaction(cluster, topic, f"{number}")
    transaction(cluster, topic, *["aborted"] * 300, commits=False)
    assert last(1) == ["8"]
    assert last(5) == ["4", "5", "6", "7", "8"]
    assert last(100) == [str(number) for number in range(9)]
    assert last(4, "--to", "-2") == ["5", "6"]
    moves = cli.json("group", "reset", "new", "--topic", topic, "-p", "0", "--to", "-2")["partitions"]
    assert cli.out("message", "consume", topic, "--from", str(moves[0]["new_offset"]), "-p", "0") == b"7\n8\n"


def test_a_topic_is_described_with_its_messages_and_not_with_markers_of_transactions(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    assert messages_of(cli, topic) == [0, 0, 0]
    transaction(cluster, topic, "1", "2", "3")
    transaction(cluster, topic, "4", "5", commits=False)
    cli.run("message", "produce", topic, "6", "-p", "1")
    assert messages_of(cli, topic) == [3, 1, 0]
    lines = cli.out("topic", "describe", topic).decode().splitlines()
    assert lines[-3].split() == ["0", "1", "1", "1", "0", "7", "3", "ok"]


def test_where_there_were_no_transactions_offsets_are_messages_and_describing_makes_no_topic(
    cli: Cli,
) -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        cli.use(cluster)
        cli.run("message", "produce", "orders", stdin=b"x\n" * 10_001)
        assert messages_of(cli, "orders") == [10_001]
        assert {topic.name for topic in cluster._image().topics.values()} == {"orders"}


def test_messages_that_are_too_many_to_be_counted_are_up_to_so_many(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    transaction(cluster, topic)
    cli.run("message", "produce", topic, "-p", "0", stdin=b"x\n" * 10_001)
    assert messages_of(cli, topic) == [None, 0, 0]
    assert "up to 10,001" in cli.out("topic", "describe", topic).decode()


def test_messages_that_are_too_large_to_be_counted_are_up_to_so_many(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    transaction(cluster, topic)
    cli.run("message", "produce", topic, "-p", "0", stdin=(b"x" * 500_000 + b"\n") * 10)
    assert messages_of(cli, topic) == [None, 0, 0]


def test_reading_starts_and_stops_where_it_is_told(cli: Cli, topic: str) -> None:
    for first in (0, 5):
        values = [str(number) for number in range(first, first + 5)]
        time_of_all = f"@{1_700_000_000_000 + first * 1000}"
        cli.run("message", "produce", topic, *values, "-p", "0", "--timestamp", time_of_all)

    def read(*options: str) -> list[int]:
        return [int(line) for line in cli.out("message", "consume", topic, *options).split()]

    assert read() == list(range(10))
    assert read("--from", "7") == [7, 8, 9]
    assert read("--from", "-2") == [8, 9]
    assert read("--from", "3", "--to", "5") == [3, 4]
    assert read("--from", "@1700000005000") == [5, 6, 7, 8, 9]
    assert read("--from", "2023-11-14T22:13:21+00:00", "--count", "2") == [5, 6]
    assert read("--from", "@1700000005001") == []
    assert read("--from", "-1h") == []
    assert read("--from", "end") == []
    assert read("--from", "100") == []
    assert read("--partition", "1") == []
    assert read("--partition", "0", "--count", "3") == [0, 1, 2]
    assert read("--count", "0") == []
    assert "has no partition 3" in cli.error("message", "consume", topic, "-p", "3", code=4)


def test_following_prints_what_comes_until_it_is_interrupted(cli: Cli, topic: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "message", "consume", topic, "--from", "end", "--follow"],
        stdout=subprocess.PIPE,
    ) as follower:
        try:
            assert follower.stdout is not None
            # It may not have found the end yet: messages are sent until one arrives.
            os.set_blocking(follower.stdout.fileno(), False)
            deadline = time.monotonic() + TIMEOUT_S
            while not (line := follower.stdout.readline()):
                assert time.monotonic() < deadline
                cli.run("message", "produce", topic, "news")
            assert line == b"news\n"
            follower.send_signal(signal.SIGINT)
            assert follower.wait(TIMEOUT_S) == 0
        finally:
            follower.kill()


def test_following_outlives_a_restart_of_the_broker(cli: Cli) -> None:
    with Cluster(topics={"orders": 1}) as restarted:
        cli.use(restarted)
        arguments = ["message", "consume", "orders", "--follow", "--count", "2"]
        with subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as follower:
            try:
                assert follower.stdout is not None
                cli.run("message", "produce", "orders", "before")
                assert follower.stdout.readline() == b"before\n"
                restarted.restart()
                cli.run("message", "produce", "orders", "after")
                assert follower.communicate(timeout=TIMEOUT_S) == (b"after\n", b"")
                assert follower.returncode == 0
            finally:
                follower.kill()


def test_a_cluster_that_is_lost_while_reading_is_reported_within_the_time_out(cli: Cli) -> None:
    with Cluster(topics={"orders": 1}) as lost:
        cli.use(lost)
        cli.run("message", "produce", "orders", stdin=b"x" * 1000 + b"\n" * 200_000)
        arguments = ["message", "consume", "orders", "--timeout", "1", "-X", "queued.max.messages.kbytes=64"]
        follower = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert follower.stdout is not None
        follower.stdout.read(2000)  # it waits for us now, with most of the topic unread
    with follower:
        _, errors = follower.communicate(timeout=TIMEOUT_S)
    assert follower.returncode == 3
    assert errors.startswith(b"error: The cluster at") and b"does not answer" in errors


def test_a_reader_that_leaves_early_is_no_failure(cli: Cli, topic: str) -> None:
    cli.run("message", "produce", topic, stdin=b"x" * 99 + b"\n" + b"y" * 99_999 + b"\n" * 20_000)
    with subprocess.Popen(
        [*COMMAND, "message", "consume", topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as consumer:
        assert consumer.stdout is not None and consumer.stderr is not None
        consumer.stdout.read(10)
        consumer.stdout.close()
        assert consumer.stderr.read() == b""
        assert consumer.wait(TIMEOUT_S) == 0


def test_input_that_is_wrong_is_named_and_what_came_before_is_sent(cli: Cli, topic: str) -> None:
    text = cli.error("message", "produce", topic, "--key-separator", "=", stdin=b"a=1\nb\n", code=1)
    assert "Message 2 has no key separator '='" in text
    assert cli.out("message", "consume", topic, "--format", "{key}{value}") == b"a1\n"
    assert "There is no file" in cli.error("message", "produce", topic, "--file", "missing.txt", code=4)


def test_a_command_that_fails_in_the_middle_says_how_many_messages_are_stored(cli: Cli, topic: str) -> None:
    text = cli.error("message", "produce", topic, "-K", "=", stdin=b"a=1\nb=2\nc=3\nd\n", code=1)
    assert "Message 4 has no key separator '='. 3 messages are stored." in text
    failed = cli.run("message", "produce", topic, "-K", "=", "--json", stdin=b"a=1\nb\n", code=1)
    assert json.loads(failed.stderr)["error"]["message"].endswith("1 message is stored.")


def test_a_message_that_is_refused_in_the_middle_leaves_as_many_stored_as_is_said(
    cli: Cli, cluster: Cluster
) -> None:
    # librdkafka puts up to 10,000 messages into a batch: those of small ones alone fit.
    cluster.create_topic("small-ones", config={"max.message.bytes": 400_000})
    lines = b"small\n" * 30_000 + bytes(600_000) + b"\n" + b"small\n" * 1000
    text = " ".join(cli.error("message", "produce", "small-ones", stdin=lines, code=1).split())
    said = re.search(r"Message size too large\.? ([\d,]+) messages? (?:is|are) stored", text)
    assert said is not None, text
    stored = len(cli.out("message", "consume", "small-ones").splitlines())
    unknown = re.search(r"perhaps ([\d,]+) more", text)
    least = int(said[1].replace(",", ""))
    assert 0 < least <= stored <= least + (int(unknown[1].replace(",", "")) if unknown else 0)


def test_ctrl_c_in_the_middle_says_how_many_messages_are_stored(cli: Cli, topic: str) -> None:
    command = [*COMMAND, "message", "produce", topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as producing:
        try:
            assert producing.stdin is not None and producing.stderr is not None
            producing.stdin.write(b"one\ntwo\nthree\n")
            producing.stdin.flush()
            wait_until(
                lambda: cli.out("message", "consume", topic).count(b"\n") == 3, TIMEOUT_S, "three lines"
            )
            producing.send_signal(signal.SIGINT)
            assert producing.wait(TIMEOUT_S) == 130
            assert b"Interrupted. 3 messages are stored." in producing.stderr.read()
        finally:
            producing.kill()


def test_piped_input_shows_on_a_terminal_how_far_it_is(
    cli: Cli, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """A person at a terminal, who pipes a program's output into the command."""
    produce = shlex.join([*COMMAND, "message", "produce", topic])
    command = ["sh", "-c", f"while read line; do echo a line; done | {produce}"]
    environment = {"MOLDAU_BOOTSTRAP": cluster.bootstrap_servers}
    with Terminal(command, environment, tmp_path) as terminal:
        terminal.press_until(ENTER, " read, ", TIMEOUT_S)
        shown = terminal.wait_for(" per second", TIMEOUT_S)
        assert re.fullmatch(r"\d+ stored, \d+ per second", shown)
        terminal.send(CTRL_D)
        last = terminal.wait_for(f" sent to {topic}", TIMEOUT_S)
        assert re.search(r"\r +\r\d+ messages? sent to", last), "the line is gone"


def test_a_message_that_the_topic_refuses_fails_the_command(cli: Cli, cluster: Cluster) -> None:
    cluster.create_topic("tiny", config={"max.message.bytes": 100})
    text = cli.error("message", "produce", "tiny", "x" * 1000, code=1)
    assert "Message size too large" in text and "max.message.bytes" in text
    assert "no such partition" in cli.error("message", "produce", "tiny", "x", "--partition", "5", code=4)
    cluster.create_topic("compacted", config={"cleanup.policy": "compact"})
    assert "without a key" in cli.error("message", "produce", "compacted", "x", code=1)


def test_an_unknown_topic_is_made_by_producing_only_where_the_broker_does_so(cli: Cli) -> None:
    cli.run("message", "produce", "made-by-use", "x")
    with Cluster(config={"auto.create.topics.enable": False}) as strict:
        cli.use(strict)
        text = cli.error("message", "produce", "not-made", "x", "--timeout", "1", code=4)
        assert "There is no topic 'not-made'" in text


# ---- configs, bench, doctor -----------------------------------------------------------------------------------


def test_configs_are_set_read_and_set_back(cli: Cli, topic: str) -> None:
    cli.run("config", "set", "topic", topic, "flush.messages=5", "cleanup.policy=compact,delete")
    assert cli.out("config", "get", "topic", topic, "flush.messages") == b"5\n"
    assert set(cli.json("config", "get", "topic", topic)) == {"flush.messages", "cleanup.policy"}
    assert cli.json("config", "get", "topic", topic, "--all")["segment.bytes"]["source"] == "default"
    cli.run("config", "unset", "topic", topic, "flush.messages")
    assert set(cli.json("config", "get", "topic", topic)) == {"cleanup.policy"}
    cli.run("config", "set", "topic", topic, "flush.messages=7", "--validate-only")
    assert set(cli.json("config", "get", "topic", topic)) == {"cleanup.policy"}
    assert "A topic has no config 'flush.message'" in cli.error(
        "config", "get", "topic", topic, "flush.message", code=4
    )


def test_where_one_config_is_refused_none_is_changed(cli: Cli, topic: str) -> None:
    text = cli.error("config", "set", "topic", topic, "flush.messages=5", "segment.byte=1", code=2)
    assert "segment.byte" in text and "Did you mean segment.bytes" in text
    assert cli.json("config", "get", "topic", topic) == {}


def test_a_broker_can_be_reconfigured_while_it_runs(cli: Cli) -> None:
    cli.run("config", "set", "broker", "1", "message.max.bytes=2000000")
    changed = cli.json("config", "get", "broker", "1")["message.max.bytes"]
    assert (changed["value"], changed["source"]) == ("2000000", "changed while running")
    cli.run("config", "unset", "broker", "1", "message.max.bytes")
    assert "message.max.bytes" not in cli.json("config", "get", "broker", "1")


def test_what_all_brokers_share_can_be_reconfigured_while_they_run(cli: Cli) -> None:
    cli.run("config", "set", "broker", "all", "message.max.bytes=2000000", "min.insync.replicas=2")
    assert cli.out("config", "get", "broker", "all", "min.insync.replicas") == b"2\n"
    assert cli.json("config", "get", "broker", "1")["min.insync.replicas"]["source"] == "cluster default"
    cli.run("config", "set", "broker", "all", "min.insync.replicas=1")
    cli.run("config", "set", "broker", "all", "min.insync.replicas=3", "--validate-only")
    cli.run("config", "unset", "broker", "all", "message.max.bytes")
    assert {key: entry["value"] for key, entry in cli.json("config", "get", "broker", "all").items()} == {
        "min.insync.replicas": "1"
    }
    assert "cannot be removed" in cli.error("config", "unset", "broker", "all", "min.insync.replicas", code=1)
    assert "set broker all" in cli.error("config", "set", "broker", "1", "min.insync.replicas=2", code=2)


def test_keys_are_explained_without_a_cluster(cli: Cli) -> None:
    (key,) = cli.json("config", "keys", "segment.bytes")
    assert key["scope"] == "topic" and key["default"] == "1073741824" and key["doc"]
    assert key["update"] == "at any time"
    assert "Did you mean segment.bytes" in cli.error("config", "keys", "segment.byte", code=4)


def visible_topics(cluster: Cluster) -> list[str]:
    """Without those that a broker makes for itself when a client first asks for a coordinator."""
    return [name for name in cluster.topics if not name.startswith("__")]


def test_bench_measures_and_leaves_no_topic(cli: Cli, cluster: Cluster) -> None:
    before = visible_topics(cluster)
    produced = cli.json("bench", "produce", "--messages", "2000", "--size", "100", "--partitions", "2")
    assert (produced["messages"], produced["bytes"]) == (2000, 200_000)
    assert produced["messages_per_s"] > 0
    latency = produced["latency_ms"]["acknowledged"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    consumed = cli.json("bench", "consume", "--messages", "2000", "--size", "100")
    assert (consumed["messages"], consumed["bytes"]) == (2000, 200_000)
    timed = cli.json("bench", "latency", "--messages", "50")["latency_ms"]
    assert timed["acknowledged"]["p50"] > 0
    assert 0 < timed["end_to_end"]["p50"] <= timed["end_to_end"]["max"]
    assert visible_topics(cluster) == before
    text = cli.out("bench", "produce", "--messages", "2000").decode()
    assert "messages/s" in text and "p99.9" in text and "%" in text


def test_doctor_finds_a_cluster_well(cli: Cli, topic: str, tmp_path: Path) -> None:
    sections = {section["title"]: section["findings"] for section in cli.json("doctor")}
    assert {finding["status"] for finding in sections["Cluster"]} == {"ok"}
    subjects = [finding["subject"] for finding in sections["Cluster"]]
    assert subjects == ["cluster", "broker 1", "controller", "topics", "partitions"]


def test_doctor_looks_at_the_default_address_only_where_a_broker_answers(
    cli: Cli, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOLDAU_BOOTSTRAP")
    for address, titles in ((cluster.bootstrap_servers, ["Cluster"]), ("127.0.0.1:1", [])):
        monkeypatch.setattr(bootstrap_option(), "default", address)
        shown = [section["title"] for section in cli.json("doctor")]
        assert [title for title in shown if title == "Cluster"] == titles


def bootstrap_option() -> click.Parameter:
    return next(parameter for parameter in doctor.command.params if parameter.name == "bootstrap")


def test_doctor_fails_where_a_cluster_cannot_be_reached(cli: Cli) -> None:
    done = cli.run("doctor", "--bootstrap", "127.0.0.1:1", code=1)
    assert b"nothing listens there" in done.stdout and b"1 to mend." in done.stdout


def test_topic_names_are_completed_from_the_cluster(cli: Cli, topic: str) -> None:
    words = f"moldau topic describe {topic[:-3]}"
    completing = {"_MOLDAU_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}

    def completed() -> list[str]:
        done = subprocess.run(
            COMMAND, capture_output=True, timeout=TIMEOUT_S, env=os.environ | completing, check=True
        )
        return done.stdout.decode().splitlines()

    # A second is all that it waits for an answer, and on a busy machine that may be too short.
    wait_until(lambda: completed() == [f"plain,{topic}"], timeout_s=TIMEOUT_S, what="the topic's name")
