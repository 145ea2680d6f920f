"""`moldau log` over a real data folder, as a person and as a program see it."""

from __future__ import annotations

import asyncio
import errno
import json
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from moldau.base.ids import TopicPartition
from moldau.cli.app import run
from moldau.cli.errors import Exit
from moldau.cli.log_disk import ReadOnlyDisk
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.coordinator.group import records as group_records
from moldau.coordinator.group.records import GroupForgotten, OffsetCommitted
from moldau.coordinator.transaction import records as transaction_records
from moldau.coordinator.transaction.records import TransactionRecorded
from moldau.coordinator.transaction.transaction import State, Transaction
from moldau.log.host import LogHost, Owner
from moldau.log.manager import LogManager
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, real_runtime

NOW_MS = 1_790_000_000_000
SETTINGS = {"internal.segment.bytes": "2000", "index.interval.bytes": "300"}


def work(job: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        runtime = real_runtime()
        try:
            await job(runtime)
        finally:
            close_runtime(runtime)

    asyncio.run(whole())


def manager(runtime: Runtime, folder: Path) -> LogManager:
    settings = topic_config(BrokerConfig.parse({}), SETTINGS)
    return LogManager(runtime, [str(folder)], Owner("cluster", 1, 1), LogHost(lambda topic: settings))


def fill(logs: LogManager) -> None:
    orders = logs.create(TopicPartition("orders", 0), uuid.UUID(int=5))
    logs.create(TopicPartition("orders", 1), uuid.UUID(int=5))
    small = logs.create(TopicPartition("small", 0), uuid.UUID(int=6))
    for number in range(60):
        rows = [Record(0, NOW_MS + number, b"key", b"value %d" % number, (("trace", b"\xff"),))]
        rows.append(Record(1, NOW_MS + number, None, None))
        codec = Codec(number % 5)
        data = build_batch(rows, codec=codec, producer_id=3, producer_epoch=0, base_sequence=2 * number)
        orders.append(memoryview(bytearray(data)), 0, len(data), leader_epoch=number // 30, now_ms=NOW_MS)
    data = build_batch([Record(0, NOW_MS, b"\x00\x1b[31m", b"caf\xc3\xa9 \xff")])
    small.append(memoryview(bytearray(data)), 0, len(data), leader_epoch=0, now_ms=NOW_MS)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def make(runtime: Runtime) -> None:
        logs = manager(runtime, tmp_path)
        await logs.open()
        fill(logs)
        await logs.close()

    work(make)
    return tmp_path


Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def called(capfd: pytest.CaptureFixture[str]) -> Called:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            run(["log", *map(str, arguments)])
        assert isinstance(ended.value.code, int)
        out, err = capfd.readouterr()
        return ended.value.code, out, err

    return call


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# verify


def test_a_sound_folder_is_said_to_be_sound_and_left_as_it_is(data: Path, called: Called) -> None:
    before = contents(data)
    code, out, err = called("verify", data)
    assert (code, err) == (Exit.OK, "")
    assert out.splitlines()[-1] == "No damage found."
    assert "3 partitions" in out and "61 batches" in out
    assert called("verify", data, "--records")[0] == Exit.OK
    for arguments in (["du"], ["dump"], ["dump", "-t", "orders", "-i", "--decode"]):
        assert called(arguments[0], data, *arguments[1:])[0] == Exit.OK
    assert contents(data) == before


def test_damage_is_told_with_file_and_position_and_exit_code_1(data: Path, called: Called) -> None:
    path = sorted((data / "orders-0").glob("*.log"))[1]
    flip(path, 100)
    code, out, _ = called("verify", data)
    assert code == Exit.FAILED
    assert f"{path.name} at byte 0" in out and "the checksum of the batch" in out
    assert out.splitlines()[-1] == "1 damaged."
    document = json.loads(called("verify", data, "--json")[1])
    (finding,) = document["findings"]
    assert (finding["severity"], finding["kind"], finding["position"]) == ("damage", "checksum", 0)
    assert finding["file"] == str(path) and finding["advice"]
    assert document["partitions"] == 3 and document["batches"] == 60
    for place in (path, path.parent):
        assert called("verify", place)[0] == Exit.FAILED
    assert called("verify", data / "small-0")[0] == Exit.OK


def test_what_the_next_start_repairs_is_no_failure(data: Path, called: Called) -> None:
    next((data / "orders-0").glob("*.index")).unlink()
    (data / "notes.txt").write_text("mine")
    code, out, _ = called("verify", data)
    assert code == Exit.OK
    assert out.splitlines()[-1] == "No damage found. 1 to be repaired by the next start, 1 noted."


def test_a_folder_in_use_is_said_to_be(tmp_path: Path, called: Called) -> None:
    async def look(runtime: Runtime) -> None:
        logs = manager(runtime, tmp_path)
        await logs.open()
        fill(logs)
        log = sorted((tmp_path / "orders-0").glob("*.log"))[-1]
        with log.open("ab") as file:
            file.write(b"half a batch")
        for path in (tmp_path, log.parent, log):
            code, out, _ = called("verify", path, "--json")
            assert code == Exit.OK
            assert [finding["kind"] for finding in json.loads(out)["findings"]] == ["running"]
        logs.release()

    work(look)
    kinds = {finding["kind"] for finding in json.loads(called("verify", tmp_path, "--json")[1])["findings"]}
    assert "running" not in kinds


def test_the_folder_of_a_cluster_is_all_of_its_brokers(tmp_path: Path, called: Called) -> None:
    async def make(runtime: Runtime) -> None:
        for number in (1, 2):
            logs = manager(runtime, tmp_path / f"broker-{number}")
            await logs.open()
            fill(logs)
            await logs.close()

    work(make)
    assert json.loads(called("verify", tmp_path, "--json")[1])["partitions"] == 6
    assert len(json.loads(called("du", tmp_path, "--json")[1])["partitions"]) == 6


@pytest.mark.parametrize("command", ["verify", "du", "dump"])
def test_paths_that_are_no_logs_are_one_sentence(command: str, tmp_path: Path, called: Called) -> None:
    code, out, err = called(command, tmp_path / "missing")
    assert (code, out) == (Exit.NOT_FOUND, "") and "There is no" in err
    code, out, err = called(command, tmp_path)
    assert (code, out) == (Exit.USAGE, "") and "holds no log" in err
    (tmp_path / "dbus-1" / "system.d").mkdir(parents=True)  # a name as a partition's makes no partition
    code, out, err = called(command, tmp_path)
    assert (code, out) == (Exit.USAGE, "") and "holds no log" in err
    (tmp_path / "notes.txt").write_text("")
    code, out, err = called(command, tmp_path / "notes.txt")
    assert (code, out) == (Exit.USAGE, "") and err.startswith("error: ")


# du


def test_sizes_are_shown_by_topic_the_largest_first(data: Path, called: Called) -> None:
    _, out, _ = called("du", data)
    header, orders, small, total = out.splitlines()
    assert header.split() == ["TOPIC", "SIZE", "LOGS", "SEGMENTS", "INDEXES", "OLDEST", "NEWEST"]
    assert orders.startswith("orders") and small.startswith("small")
    assert total.endswith("in 3 partitions.")
    rows = [line.split()[0] for line in called("du", data, "--partitions")[1].splitlines()[1:-1]]
    assert rows == ["orders-0", "small-0", "orders-1"]
    rows = [line.split()[0] for line in called("du", data, "-p", "--sort", "name")[1].splitlines()[1:-1]]
    assert rows == ["orders-0", "orders-1", "small-0"]


def test_sizes_are_json_for_programs(data: Path, called: Called) -> None:
    document = json.loads(called("du", data, "--topic", "orders", "--json")[1])
    first, second = document["partitions"]
    folder = data / "orders-0"
    assert first["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    assert (first["first_offset"], first["next_offset"]) == (0, 120)
    assert (first["oldest_ms"], first["newest_ms"]) == (NOW_MS, NOW_MS + 59)
    assert (second["segments"], second["oldest_ms"]) == (0, None)
    assert document["bytes"] == first["bytes"] + second["bytes"]


def test_sparse_files_count_with_what_they_occupy(data: Path, called: Called) -> None:
    index = sorted((data / "orders-0").glob("*.index"))[-1]
    before = json.loads(called("du", data, "--json")[1])["bytes"]
    with index.open("r+b") as file:
        file.truncate(10 << 20)
    if index.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no sparse files")
    assert json.loads(called("du", data, "--json")[1])["bytes"] < before + 10_000


# dump


def test_batches_are_dumped_with_every_field(data: Path, called: Called) -> None:
    path = sorted((data / "orders-0").glob("*.log"))[0]
    first, second, *_ = lines(called("dump", path, "--json")[1])
    assert first["type"] == "batch" and first["file"] == str(path)
    assert (first["position"], first["base_offset"], first["last_offset"], first["count"]) == (0, 0, 1, 2)
    assert (first["codec"], second["codec"]) == ("none", "gzip")
    assert (second["position"], second["base_sequence"], second["last_sequence"]) == (first["size"], 2, 3)
    assert (first["producer_id"], first["producer_epoch"], first["leader_epoch"]) == (3, 0, 0)
    assert first["max_timestamp"] == NOW_MS and first["crc_ok"] is True


def test_records_are_dumped_from_an_offset_on_up_to_a_count(data: Path, called: Called) -> None:
    code, out, _ = called("dump", data, "-t", "orders", "-p", 0, "-d", "--from", 51, "-n", 4, "--json")
    assert code == Exit.OK
    records = [line for line in lines(out) if line["type"] == "record"]
    assert [record["offset"] for record in records] == [51, 52, 53, 54]
    assert records[1]["key"] == "key" and records[1]["value"] == "value 26"
    assert records[1]["headers"] == [{"key": "trace", "value_base64": "/w=="}]
    assert records[0]["key"] is None and records[0]["value"] is None


def test_every_kind_of_file_is_dumped(data: Path, called: Called) -> None:
    found = lines(called("dump", data, "-t", "orders", "-i", "--json")[1])
    found += lines(called("dump", data, "--json")[1])
    assert {line["type"] for line in found} == {
        "batch",
        "index",
        "timeindex",
        "producer",
        "epoch",
        "metadata",
        "offset",
        "properties",
        "clean-shutdown",
    }
    for path in (data / "orders-0").iterdir():
        assert called("dump", path)[0] == called("dump", path, "--json")[0] == Exit.OK
    assert {"type": "epoch", "start_offset": 60}.items() <= found_of(found, "epoch")[-1].items()
    assert found_of(found, "offset")[0]["topic"] == "orders"
    assert found_of(found, "producer")[-1]["last_sequence"] == 119
    last = found_of(found, "timeindex")[-1]
    assert (last["timestamp"], last["offset"]) == (NOW_MS + 59, 119)


def found_of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in found if line["type"] == kind]


def test_the_table_of_batches_fits_80_columns(
    data: Path, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)  # paths are shown from here
    out = called("dump", data, "-t", "orders", "-p", 0, "-d")[1].replace(str(data), "")
    assert max(map(len, out.splitlines())) <= 80
    assert "producer 3 epoch 0, sequences 0 to 1" in out
    assert "  0  key: value 0  [trace=" in out


def test_bytes_that_would_change_the_terminal_are_escaped(data: Path, called: Called) -> None:
    out = called("dump", data, "-t", "small", "--decode")[1]
    assert "\\x00\\x1b[31m: café \\xff" in out and "\x1b" not in out
    out = called("dump", data, "-t", "small", "--decode", "--key-as", "hex", "--value-as", "base64")[1]
    assert "001b5b33316d: Y2Fmw6kg/w==" in out


def test_a_record_stays_in_its_line(tmp_path: Path, called: Called) -> None:
    path = segment(tmp_path / "orders-0", [(b"a\nb", b"c\td")])
    assert called("dump", path, "-d")[1].splitlines()[-1] == "  0  a\\nb: c\\td"


def test_records_of_groups_and_transactions_are_told_in_words(tmp_path: Path, called: Called) -> None:
    offset = OffsetCommitted("billing", "orders", 2, 30, 0, "", NOW_MS)
    odd = GroupForgotten("a\x1b[31m\nb")
    path = segment(
        tmp_path / "__consumer_offsets-7", [*map(group_records.encode, (offset, odd)), (b"?", b"")]
    )
    *_, first, second, third = called("dump", path, "-d")[1].splitlines()
    assert first.startswith("  0  OffsetCommitted group_id=billing topic=orders partition=2 offset=30 ")
    assert second == "  1  GroupForgotten group_id=a\\x1b[31m\\nb"
    assert third == "  2  ?: "
    told = [line.get("meaning") for line in lines(called("dump", path, "-d", "--json")[1])]
    assert told[1]["kind"] == "OffsetCommitted" and told[1]["offset"] == 30
    assert told[3] is None
    raw = called("dump", path, "-d", "--key-as", "hex")[1]
    assert "OffsetCommitted" not in raw and b"billing".hex() in raw

    ongoing = Transaction(4, 1, 60_000, State.ONGOING, (TopicPartition("orders", 2),), NOW_MS, NOW_MS)
    record = transaction_records.encode(TransactionRecorded("shop-1", ongoing))
    path = segment(tmp_path / "__transaction_state-3", [record])
    told = lines(called("dump", path, "-d", "--json")[1])[1]["meaning"]
    assert (told["transactional_id"], told["transaction"]["state"]) == ("shop-1", "Ongoing")
    assert told["transaction"]["partitions"] == [{"topic": "orders", "partition": 2}]


def segment(folder: Path, pairs: list[tuple[bytes, bytes | None]]) -> Path:
    """A log of one batch with these keys and values."""
    folder.mkdir()
    path = folder / f"{0:020}.log"
    path.write_bytes(build_batch([Record(at, NOW_MS, *pair) for at, pair in enumerate(pairs)]))
    return path


def test_damage_is_dumped_as_such_and_passed_over(data: Path, called: Called) -> None:
    path = sorted((data / "orders-0").glob("*.log"))[0]
    flip(path, 70)
    first, second, *_ = lines(called("dump", path, "--json")[1])
    assert (first["type"], first["position"], first["crc_ok"]) == ("damage", 0, False)
    assert second["base_offset"] == 2
    assert "the checksum does not match" in called("dump", path)[1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--partition", "0"], Exit.USAGE, "--partition needs a --topic."),
        (["--topic", "none"], Exit.NOT_FOUND, "holds no partition of topic 'none'"),
        (["--topic", "small", "-p", "7"], Exit.NOT_FOUND, "holds no partition 7 of topic 'small'"),
    ],
)
def test_what_is_not_there_is_said(
    data: Path, called: Called, arguments: list[str], code: Exit, said: str
) -> None:
    found, out, err = called("dump", data, *arguments)
    assert (found, out) == (code, "") and said in err
    if arguments[0] == "--topic" and "-p" not in arguments:
        found, out, err = called("du", data, *arguments)
        assert (found, out) == (code, "") and said in err


# the disk


def test_the_disk_refuses_every_change(tmp_path: Path) -> None:
    disk = ReadOnlyDisk()
    path = str(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"content")
    file = disk.open(path)
    for change in (
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.sync,
        lambda: disk.open(str(tmp_path / "new"), create=True),
        lambda: disk.make_folder(str(tmp_path / "folder")),
        lambda: disk.rename(path, path + "2"),
        lambda: disk.remove(path),
        lambda: disk.remove_tree(str(tmp_path)),
        lambda: disk.write_atomic(path, b""),
        lambda: disk.sync_folder(str(tmp_path)),
    ):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert (file.pread(3, 2), file.size()) == (b"nte", 7)
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
