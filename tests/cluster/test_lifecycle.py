"""What survives a stop, a pause and a restart of a broker process, and what keeps two of them apart."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.raw import (
    RawConnection,
    fetch_request,
    frame,
    metadata_request,
    nested,
    produce_request,
    request_class,
)
from bench.server import MoldauServer, Server
from cluster.support import create_topic, one_record_batch, wait_until
from cluster.writers import IdempotentWriter
from interop.clients import Message
from interop.clients.confluent import Confluent
from stored import read_partition

NewServer = Callable[..., Server]


def topic_ids(bootstrap: str) -> dict[str, object]:
    with RawConnection(bootstrap) as connection:
        answer = connection.ask(metadata_request())
    return {topic.name: topic.topic_id for topic in answer.topics}


def test_topics_ids_configs_and_messages_survive_a_clean_stop(new_server: NewServer) -> None:
    server = new_server().start()
    client = Confluent(server.bootstrap_servers)
    create_topic(server.bootstrap_servers, "kept", 3, retention_ms="123456789")
    create_topic(server.bootstrap_servers, "changed")
    client.alter_configs("changed", put={"cleanup.policy": "compact"})
    client.produce("kept", [Message(b"one"), Message(b"two")], partition=1, idempotent=True)
    ids = topic_ids(server.bootstrap_servers)
    assert server.stop(), server.output()

    server.start()
    assert topic_ids(server.bootstrap_servers) == ids
    assert client.topics()["kept"] == 3
    assert client.describe_configs("kept")["retention.ms"] == "123456789"
    assert client.describe_configs("changed")["cleanup.policy"] == "compact"
    assert [m.value for m in client.consume("kept", offset=0, count=2, partition=1)] == [b"one", b"two"]
    client.produce("kept", [Message(b"three")], partition=1, idempotent=True)
    assert client.watermarks("kept", 1) == (0, 3)


def test_topics_ids_and_configs_survive_kill_9(new_server: NewServer) -> None:
    server = new_server().start()
    create_topic(server.bootstrap_servers, "kept", 3, retention_ms="123456789")
    ids = topic_ids(server.bootstrap_servers)
    server.kill()
    server.start()
    assert topic_ids(server.bootstrap_servers) == ids
    assert Confluent(server.bootstrap_servers).describe_configs("kept")["retention.ms"] == "123456789"


def test_the_files_of_a_deleted_topic_are_gone(new_server: NewServer) -> None:
    server = new_server(log_segment_delete_delay_ms=100).start()
    create_topic(server.bootstrap_servers, "passing", 4)
    client = Confluent(server.bootstrap_servers)
    client.produce("passing", [Message(b"x" * 1000)] * 100, partition=2)
    assert len(folders_of(server.data, "passing")) == 4
    client.delete("passing")
    wait_until(lambda: not folders_of(server.data, "passing"), 20, "the folders to go")
    server.stop()
    server.start()
    assert "passing" not in client.topics()
    create_topic(server.bootstrap_servers, "passing")
    assert client.watermarks("passing") == (0, 0)


def folders_of(data: Path, topic: str) -> list[Path]:
    return [path for path in data.rglob(f"{topic}-*") if path.is_dir()]


def test_a_second_process_on_the_same_folder_is_refused_in_a_sentence(new_server: NewServer) -> None:
    first = new_server().start()
    if not isinstance(first, MoldauServer):
        pytest.skip("It reads Moldau's own words.")
    second = new_server()
    second.folder, own_folder = first.folder, second.folder  # the same data, its own output
    command = second.command()
    second.folder = own_folder
    second.command = lambda: command  # type: ignore[method-assign]
    second.launch()
    assert second.wait(timeout_s=20) != 0
    said = second.output()
    assert "in use" in said and str(first.data) in said and str(first.pid) in said
    assert "Traceback" not in said
    assert Confluent(first.bootstrap_servers).topics() == {}


def test_a_paused_broker_goes_on_where_it_was(new_server: NewServer) -> None:
    server = new_server().start()
    create_topic(server.bootstrap_servers, "paused")
    writer = IdempotentWriter("writer", server.bootstrap_servers, "paused", [0], seed=1)
    writer.start()
    wait_until(lambda: len(writer.acknowledged()) > 100, what="the writer to start")
    server.pause()
    threading.Event().wait(2)
    before = len(writer.acknowledged())
    server.resume()
    wait_until(lambda: len(writer.acknowledged()) > before + 100, 30, "the writer to go on")
    writer.end(timeout_s=30)
    with RawConnection(server.bootstrap_servers) as connection:
        stored = read_partition(connection, "paused", 0)
    numbers = [int((record.value or b"").split(b":")[2]) for record in stored]
    assert numbers == list(range(len(writer.acknowledged())))


def test_an_unanswered_request_does_not_hold_up_a_clean_stop(new_server: NewServer) -> None:
    """A fetch waits a minute for data that never comes; the broker stops at once, with exit code 0."""
    server = new_server().start()
    create_topic(server.bootstrap_servers, "waiting")
    with RawConnection(server.bootstrap_servers) as connection:
        answer = connection.ask(produce_request("waiting", 0, one_record_batch(b"x")))
        assert answer.responses[0].partition_responses[0].error_code == 0
        connection.send(frame(fetch_request("waiting", 0, 1, wait_ms=60_000)))
        assert server.stop(timeout_s=15), server.output()


def test_partitions_added_later_survive_a_restart(new_server: NewServer) -> None:
    server = new_server().start()
    create_topic(server.bootstrap_servers, "growing")
    cls = request_class(37, 3)
    grown = nested(cls, "topics")(name="growing", count=5, assignments=None)
    with RawConnection(server.bootstrap_servers) as connection:
        answer = connection.ask(
            cls(topics=(grown,), timeout=datetime.timedelta(seconds=10), validate_only=False)
        )
    assert answer.results[0].error_code == 0, answer
    client = Confluent(server.bootstrap_servers)
    client.produce("growing", [Message(b"last")], partition=4)
    server.kill()
    server.start()
    assert client.topics()["growing"] == 5
    assert client.consume("growing", offset=0, count=1, partition=4)[0].value == b"last"
