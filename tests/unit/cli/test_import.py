"""`moldau import` on the folders of a stopped Kafka node: what it leaves behind, and what a person sees."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from golden.kraft import unpack
from moldau.base.ids import TopicPartition
from moldau.cli.app import run
from moldau.cli.data_folder import only_broker
from moldau.cli.errors import Exit
from moldau.cli.import_files import RealCarrier
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.controller.loading import load_image
from moldau.importer.carry_out import ASIDE, PARTIAL, How
from moldau.log.host import LogHost, Owner
from moldau.log.index import read_waiting
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.log.scan import checked_batches
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigResource, ResourceType
from moldau.records.record import Record, build_batch, read_records
from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, real_runtime
from moldau.runtime.real.disk import RealDisk
from moldau.store.sqlite import SqliteStore

NOW_MS = 1_790_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return unpack(tmp_path / "kafka")


def moldau(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in arguments])
    code = ended.value.code
    assert isinstance(code, int)
    return code


def sources(node: Path, option: str = "--from") -> tuple[object, ...]:
    return (option, node / "a", option, node / "b")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def work(job: Callable[[Runtime], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        runtime = real_runtime()
        try:
            return await job(runtime)
        finally:
            close_runtime(runtime)

    return asyncio.run(whole())


def image_in(store: Path) -> tuple[ClusterImage, int]:
    """The cluster that a broker would find, and the first producer id that it would give."""

    async def load(runtime: Runtime) -> tuple[ClusterImage, int]:
        opened = await SqliteStore.open(runtime.tasks, str(store))
        try:
            image = await load_image(opened)
            return image, image.next_producer_id
        finally:
            await opened.close()

    found: tuple[ClusterImage, int] = work(load)
    return found


def records_of(log: Log) -> list[Record]:
    found = []
    for base in log.segments.bases:
        segment = log.segments.at(base)
        for batch, data in checked_batches(segment.log, 0, segment.size, read_waiting):
            if not batch.header.is_control:
                found += read_records(data)
    return found


async def opened(runtime: Runtime, *folders: Path) -> LogManager:
    settings = topic_config(BrokerConfig.parse({}), {})
    text = (folders[0] / "meta.properties").read_text()
    cluster_id = next(line for line in text.splitlines() if line.startswith("cluster.id=")).partition("=")[2]
    logs = LogManager(
        runtime,
        [str(folder) for folder in folders],
        Owner(cluster_id, node_id=7, process_id=1),
        LogHost(lambda topic: settings),
    )
    await logs.open()
    return logs


def check_logs(caplog: pytest.LogCaptureFixture, *folders: Path) -> None:
    """A broker opens the folders without a complaint, and every record is there."""

    async def look(runtime: Runtime) -> None:
        logs = await opened(runtime, *folders)
        try:
            orders = logs.logs[TopicPartition("orders", 0)]
            records = records_of(orders)
            assert [record.offset for record in records] == list(range(25))
            values = [f"{codec} {number} ".encode() * 5 for codec in CODECS for number in range(5)]
            assert [record.value for record in records] == values
            assert {record.headers for record in records} == {(("h", b"1"),)}
            assert [producer.last_sequence for producer in orders.producers()] == [4] * 5
            payments = logs.logs[TopicPartition("payments", 0)]
            assert payments.next_offset == 4
            assert [record.value for record in records_of(payments)] == [
                b"commit_transaction",
                b"abort_transaction",
            ]
            assert logs.logs[TopicPartition("__consumer_offsets", 0)].next_offset > 0
        finally:
            logs.release()

    with caplog.at_level(logging.WARNING):
        work(look)
    assert not caplog.messages


def test_an_import_brings_topics_settings_and_records(
    node: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(node)
    data = tmp_path / "data"
    assert moldau("import", *sources(node), "--data", data) == Exit.OK
    printed = capsys.readouterr()
    assert f"Start it with: moldau up --data {data}" in printed.out
    assert contents(node) == before, "Kafka's folders are only read"
    assert sorted(os.listdir(data)) == ["broker-7", "cluster.sqlite"]

    image, producer_id = image_in(data / "cluster.sqlite")
    assert f"cluster.id={image.cluster_id}" in (node / "a" / "meta.properties").read_text()
    assert producer_id > 1000 + 1_000_000_000_000, "none that Kafka gives later"
    assert sorted(image.topics) == [
        "__consumer_offsets",
        "__transaction_state",
        "grown",
        "orders",
        "payments",
        "reborn",
    ]
    assert image.topics["__consumer_offsets"].is_internal
    assert image.topics["orders"].configs == {"retention.ms": "-1", "min.insync.replicas": "1"}
    assert image.configs(ConfigResource(ResourceType.BROKER, "7")) == {"log.cleaner.threads": "2"}
    assert image.configs(ConfigResource(ResourceType.BROKER, "")) == {"min.insync.replicas": "1"}
    assert image.configs(ConfigResource(ResourceType.GROUP, "g1")) == {"consumer.session.timeout.ms": "50000"}
    for topic in image.topics.values():
        for state in topic.partitions:
            assert (state.leader, state.replicas, state.isr) == (7, (7,), (7,))
            assert state.leader_epoch >= 2  # Kafka's leader, its end, and Moldau's
    check_logs(caplog, data / "broker-7")
    assert only_broker(str(data), default=1) == 7


def test_an_import_in_place_changes_only_what_it_must(
    node: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(node)
    assert moldau("import", *sources(node, "--in-place")) == Exit.OK
    out = capsys.readouterr().out
    assert f"--set node.id=7 --set log.dirs={node}/a,{node}/b" in out
    after = contents(node)
    assert after.pop("a/cluster.sqlite")
    assert after == {name.replace("__cluster_metadata-0", ASIDE): data for name, data in before.items()}
    assert sorted(image_in(node / "a" / "cluster.sqlite")[0].topics)[2:] == [
        "grown",
        "orders",
        "payments",
        "reborn",
    ]
    check_logs(caplog, node / "a", node / "b")
    assert moldau("import", "--from", node / "a") == Exit.FAILED
    assert "is Moldau's already" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--from", "--in-place"])
def test_a_dry_run_writes_nothing(
    node: Path, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(tmp_path)
    where = ("--data", tmp_path / "data") if option == "--from" else ()
    assert moldau("import", *sources(node, option), *where, "--dry-run") == Exit.OK
    printed = capsys.readouterr()
    assert "orders" in printed.out
    assert "Nothing was written." in printed.err
    assert contents(tmp_path) == before
    assert not (tmp_path / "data").exists()


def test_programs_get_one_document(node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert moldau("import", *sources(node), "--data", data, "--json") == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["mode"], told["dry_run"], told["node_id"], told["metadata_version"]) == (
        "copy",
        False,
        7,
        30,
    )
    assert told["data"] == str(data)
    assert sum(told["brought_over"].values()) == told["bytes"] > 0
    (orders,) = (topic for topic in told["topics"] if topic["name"] == "orders")
    assert (orders["partitions"], orders["offsets"], orders["internal"]) == (2, 25, False)
    assert len(orders["id"]) == 22
    assert not any("ACL" in note for note in told["notes"])
    assert moldau("user", "list", "--data", data, "--json") == Exit.OK
    assert json.loads(capsys.readouterr().out) == [{"user": "al", "mechanisms": ["SCRAM-SHA-256"]}]


def test_a_refusal_is_one_sentence_and_what_to_do(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "a" / ".kafka_cleanshutdown").unlink()
    assert moldau("import", *sources(node), "--json") == Exit.FAILED
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["message"].startswith(f"Kafka was not stopped cleanly on {node}/a")
    assert "SIGTERM" in error["hint"]


def test_a_folder_with_something_in_it_is_not_imported_into(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "notes.txt").write_text("mine")
    assert moldau("import", *sources(node), "--data", data) == Exit.FAILED
    assert "is not empty (notes.txt)" in capsys.readouterr().err
    assert moldau("import", *sources(node), "--data", data, "--dry-run") == Exit.FAILED
    printed = capsys.readouterr()
    assert "payments" in printed.out and "is not empty (notes.txt)" in printed.err
    assert contents(data) == {"notes.txt": b"mine"}


def test_a_place_within_kafkas_folder_is_refused(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(node)
    for place in (node / "b", node / "b" / "new"):
        assert moldau("import", *sources(node), "--data", place) == Exit.FAILED
        assert "lies in Kafka's own folder" in capsys.readouterr().err
    assert contents(node) == before
    assert not (node / "b" / "new").exists()


@pytest.mark.parametrize("was_there", [True, False])
def test_a_failure_at_the_very_end_leaves_nothing_behind(
    node: Path, tmp_path: Path, was_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    if was_there:
        data.mkdir()
    rename = RealDisk.rename

    def refuse_the_store(self: RealDisk, source: str, target: str) -> None:
        if target.endswith("cluster.sqlite"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)
        rename(self, source, target)

    before = contents(node)
    monkeypatch.setattr(RealDisk, "rename", refuse_the_store)
    assert moldau("import", *sources(node), "--data", data) == Exit.FAILED
    assert data.exists() == was_there
    assert contents(data) == {}
    assert moldau("import", *sources(node, "--in-place")) == Exit.FAILED
    assert contents(node) == before


def test_kafka_keeps_its_folder_where_its_metadata_cannot_be_put_aside(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = RealDisk.rename

    def refuse_the_metadata(self: RealDisk, source: str, target: str) -> None:
        if target.endswith(ASIDE):
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)
        rename(self, source, target)

    before = contents(node)
    monkeypatch.setattr(RealDisk, "rename", refuse_the_metadata)
    assert moldau("import", *sources(node, "--in-place")) == Exit.FAILED
    assert contents(node) == before


def test_a_full_disk_leaves_nothing_behind(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    brought = []

    def bring(self: RealCarrier, source: str, target: str, **_: object) -> How:
        brought.append(target)
        if len(brought) > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        Path(target).touch()
        return How.COPIED

    before = contents(node)
    monkeypatch.setattr(RealCarrier, "bring", bring)
    assert moldau("import", *sources(node), "--data", tmp_path / "data") == Exit.FAILED
    assert "No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    assert contents(node) == before


def test_what_an_interrupted_import_left_is_no_data_and_is_done_again(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    (data / PARTIAL / "broker-7" / "orders-0").mkdir(parents=True)
    (data / PARTIAL / "broker-7" / "orders-0" / f"{0:020d}.log").write_text("half")
    assert moldau("up", "--data", data) == Exit.CANNOT_START
    assert PARTIAL in capsys.readouterr().err
    assert moldau("import", *sources(node), "--data", data) == Exit.OK
    assert sorted(os.listdir(data)) == ["broker-7", "cluster.sqlite"]


def test_closed_segments_are_shared_and_what_grows_is_not(node: Path, tmp_path: Path) -> None:
    """The active segment is made a closed one by a new, empty one behind it, as when Kafka rolls."""
    (home,) = node.glob("*/orders-0")
    (home / f"{25:020d}.log").touch()
    data = tmp_path / "data"
    assert moldau("import", *sources(node), "--data", data, "--link") == Exit.OK
    log = data / "broker-7" / "orders-0"
    closed, active = (f"{base:020d}.log" for base in (0, 25))
    assert (log / closed).samefile(home / closed)
    for path in (data / "broker-7").glob("*/*"):
        if path.name != closed or path.parent.name != "orders-0":
            assert path.stat().st_nlink == 1, path
    before = contents(node)

    async def append(runtime: Runtime) -> None:
        logs = await opened(runtime, data / "broker-7")
        batch = build_batch([Record(0, NOW_MS, b"k", b"new")])
        orders = logs.logs[TopicPartition("orders", 0)]
        assert (
            orders.append(memoryview(bytearray(batch)), 0, len(batch), leader_epoch=3, now_ms=NOW_MS).error
            == 0
        )
        await logs.close()

    work(append)
    assert (log / active).stat().st_size > 0
    assert contents(node) == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "either --from or --in-place"),
        (("--from", "x", "--in-place", "x"), "either --from or --in-place"),
        (("--in-place", "x", "--data", "y"), "takes no --data"),
        (("--from", "x", "--from", "x"), "named twice"),
    ],
)
def test_wrong_usage_is_told(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moldau("import", *arguments) == Exit.USAGE
    assert complaint in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert moldau("import", "--from", tmp_path / "nowhere") == Exit.NOT_FOUND
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [("up", "--data"), ("broker", "--config", "server.properties", "--set")],
    ids=["up", "broker"],
)
def test_a_broker_does_not_start_on_kafkas_folder_but_names_the_import(
    node: Path,
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (node / "server.properties").write_text("node.id=7\n")
    monkeypatch.chdir(node)
    before = contents(node)
    folder = str(node / "a")
    assert moldau(*arguments, folder if arguments[0] == "up" else f"log.dirs={folder}") == Exit.CANNOT_START
    told = capsys.readouterr().err
    assert f"{folder} is Apache Kafka's" in told
    assert "moldau import --" in told
    assert contents(node) == before


def test_the_doctor_knows_kafkas_folder(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moldau("doctor", "--data", node / "a")
    assert "Apache Kafka wrote this folder" in capsys.readouterr().out
