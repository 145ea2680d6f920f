"""What a crash leaves of a simulated disk, and how the disk fails."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from moldau.runtime.ports import Disk
from moldau.sim.disk import SimDisk
from moldau.sim.drive import DiskFaults
from moldau.sim.loop import HostCrashed
from moldau.sim.world import SimHost, World

SEEDS = range(60)
OLD, NEW = b"o" * 4096, b"n" * 4096


def host_with(faults: DiskFaults | None = None, seed: int = 1) -> SimHost:
    return World(seed).host("a", disk=faults)


def after_crash(seed: int, before: Callable[[Disk], None]) -> Disk:
    """Do something on a fresh disk, cut the power, and look at it again."""
    host = host_with(seed=seed)
    before(host.runtime.disk)
    return host.restart().disk


def synced_file(disk: Disk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.pwrite(content, 0)
    file.sync()
    disk.sync_folder("/")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_synced_with_its_name_survives(seed: int) -> None:
    def before(disk: Disk) -> None:
        disk.make_folder("/data/topic-0")
        disk.sync_folder("/")
        disk.sync_folder("/data")
        file = disk.open("/data/topic-0/log", create=True)
        file.pwrite(OLD, 0)
        file.sync()
        disk.sync_folder("/data/topic-0")
        file.pwrite(NEW, 4096)

    content = after_crash(seed, before).read("/data/topic-0/log")
    assert content[:4096] == OLD


def fates(before: Callable[[Disk], None], look: Callable[[Disk], object]) -> set[object]:
    return {look(after_crash(seed, before)) for seed in SEEDS}


def test_unsynced_bytes_are_lost_torn_or_kept_by_seed() -> None:
    def before(disk: Disk) -> None:
        synced_file(disk, "/log", OLD)
        disk.open("/log").pwrite(NEW, 0)

    def look(disk: Disk) -> str:
        content = disk.read("/log")
        sectors = {content[start : start + 512] for start in range(0, 4096, 512)}
        assert sectors <= {OLD[:512], NEW[:512]}
        return "torn" if len(sectors) == 2 else content[:1].decode()

    assert fates(before, look) == {"o", "n", "torn"}


def test_a_lost_append_before_a_kept_one_leaves_zeros() -> None:
    def before(disk: Disk) -> None:
        synced_file(disk, "/log", b"")
        file = disk.open("/log")
        file.pwrite(b"a" * 512, 0)
        file.pwrite(b"b" * 512, 512)

    found = fates(before, lambda disk: disk.read("/log"))
    assert {b"", b"a" * 512, b"a" * 512 + b"b" * 512, bytes(512) + b"b" * 512} <= found


def test_an_unsynced_truncation_may_be_undone() -> None:
    def before(disk: Disk) -> None:
        synced_file(disk, "/log", OLD)
        disk.open("/log").truncate(100)

    assert fates(before, lambda disk: disk.size("/log")) == {100, 4096}


def test_names_are_durable_only_after_a_sync_of_their_folder() -> None:
    def before(disk: Disk) -> None:
        file = disk.open("/new", create=True)
        file.pwrite(b"x", 0)
        file.sync()
        synced_file(disk, "/old", b"x")
        disk.rename("/old", "/renamed")
        disk.open("/removed", create=True)
        disk.sync_folder("/")
        disk.remove("/removed")
        disk.make_folder("/folder")

    names = fates(before, lambda disk: tuple(disk.list("/")))
    assert names == {
        ("new", "removed", "renamed"),
        ("new", "renamed"),
        ("folder", "new", "renamed"),
    }


def test_a_rename_is_done_whole_or_not_at_all() -> None:
    def before(disk: Disk) -> None:
        disk.make_folder("/a")
        disk.make_folder("/b")
        disk.sync_folder("/")
        disk.open("/a/file", create=True)
        disk.sync_folder("/a")
        disk.rename("/a/file", "/b/file")

    assert fates(before, lambda disk: (*disk.list("/a"), *disk.list("/b"))) == {("file",)}


def test_a_folder_that_was_not_made_durable_takes_its_content_along() -> None:
    def before(disk: Disk) -> None:
        disk.make_folder("/topic-0")
        file = disk.open("/topic-0/log", create=True)
        file.pwrite(b"x", 0)
        file.sync()
        disk.sync_folder("/topic-0")

    assert fates(before, lambda disk: disk.exists("/topic-0/log")) == {True, False}


@pytest.mark.parametrize("seed", range(10))
def test_write_atomic_is_all_or_nothing_wherever_the_power_is_cut(seed: int) -> None:
    outcomes = set()
    for changes in range(8):
        host = host_with(seed=seed)
        host.runtime.disk.write_atomic("/checkpoint", OLD)
        host.drive.crash_after(changes)
        returned = True
        try:
            host.runtime.disk.write_atomic("/checkpoint", NEW)
        except HostCrashed:
            returned = False
        disk = host.restart().disk
        content = disk.read("/checkpoint")
        assert content in (OLD, NEW)
        assert content == NEW or not returned
        outcomes.add((returned, content[:1]))
        disk.write_atomic("/checkpoint", b"again")
        assert disk.read("/checkpoint") == b"again"
    assert {(False, b"o"), (True, b"n")} <= outcomes


def test_after_a_failed_sync_pages_look_written_and_no_later_sync_writes_them() -> None:
    lost = 0
    for seed in SEEDS:
        host = host_with(seed=seed)
        synced_file(host.runtime.disk, "/log", OLD)
        file = host.runtime.disk.open("/log")
        file.pwrite(NEW, 0)
        host.drive.fail_next("sync")
        with pytest.raises(OSError) as caught:
            file.sync()
        assert caught.value.errno == errno.EIO
        assert file.pread(4096, 0) == NEW
        file.sync()
        lost += host.restart().disk.read("/log") == OLD
    assert 0 < lost < len(SEEDS)


def test_a_kill_keeps_the_page_cache() -> None:
    host = host_with()
    disk = host.runtime.disk
    disk.open("/log", create=True).pwrite(NEW, 0)
    lock = disk.lock("/.lock")
    host.kill()
    disk = host.restart().disk
    assert disk.read("/log") == NEW
    disk.lock("/.lock")
    with pytest.raises(HostCrashed):
        lock.release()


def test_a_full_disk_takes_a_part_and_then_nothing() -> None:
    host = host_with(DiskFaults(capacity_bytes=10_000))
    disk = host.runtime.disk
    file = disk.open("/log", create=True)
    assert file.pwrite(bytes(8_000), 0) == 8_000
    assert disk.free_bytes("/") == 2_000
    assert file.pwrite(bytes(4_000), 8_000) == 2_000
    with pytest.raises(OSError) as caught:
        file.pwrite(b"x", 10_000)
    assert caught.value.errno == errno.ENOSPC
    assert file.pwrite(b"over", 0) == 4
    with pytest.raises(OSError):
        disk.write_atomic("/checkpoint", b"x")
    assert not disk.exists("/checkpoint.tmp")
    file.truncate(5_000)
    assert file.pwrite(bytes(4_000), 5_000) == 4_000
    disk.remove("/log")
    assert disk.free_bytes("/") == 10_000


def test_errors_come_by_kind_and_path_on_demand() -> None:
    host = host_with()
    disk = host.runtime.disk
    log, index = disk.open("/0.log", create=True), disk.open("/0.index", create=True)
    host.drive.fail_next("write", path_contains=".index", count=2)
    host.drive.fail_next("read", number=errno.ENXIO)
    assert log.pwrite(b"x", 0) == 1
    for _ in range(2):
        with pytest.raises(OSError, match=r"0\.index"):
            index.pwrite(b"x", 0)
    assert index.pwrite(b"x", 0) == 1
    with pytest.raises(OSError) as caught:
        log.pread(1, 0)
    assert caught.value.errno == errno.ENXIO
    assert log.pread(1, 0) == b"x"


def test_errors_and_short_writes_come_by_rate() -> None:
    host = host_with(DiskFaults(write_error_rate=0.2, short_write_rate=0.5))
    outcomes: set[str] = set()
    for number in range(100):
        try:
            file = host.runtime.disk.open("/log", create=True)
            outcomes.add("whole" if file.pwrite(b"0123456789", 10 * number) == 10 else "short")
        except OSError:
            outcomes.add("error")
    assert outcomes == {"whole", "short", "error"}


def test_cold_pages_are_not_waited_for_and_are_there_after_warming() -> None:
    host = host_with(DiskFaults(cold_rate=1.0))
    file = host.runtime.disk.open("/log", create=True)
    file.pwrite(b"content", 0)
    assert not file.is_cached(0, 7)
    with pytest.raises(BlockingIOError):
        file.pread_nowait(7, 0)
    file.warm(0, 7)
    assert file.pread_nowait(7, 0) == b"content"


def test_a_file_that_was_renamed_must_be_opened_again() -> None:
    disk = host_with().runtime.disk
    file = disk.open("/old", create=True)
    disk.rename("/old", "/new")
    with pytest.raises(FileNotFoundError):
        file.pwrite(b"x", 0)


def test_calls_that_would_stall_the_loop_are_counted() -> None:
    world = World(1)
    host = world.host("a")
    disk = host.runtime.disk
    assert isinstance(disk, SimDisk)
    file = disk.open("/log", create=True)

    async def scenario() -> None:
        await host.runtime.tasks.in_thread(file.sync)
        await host.runtime.tasks.in_thread(disk.write_atomic, "/checkpoint", b"x")
        assert disk.stalls == {}
        file.sync()
        disk.write_atomic("/checkpoint", b"x")

    world.run(scenario())
    assert disk.stalls == {"sync": 2, "sync_folder": 1}
