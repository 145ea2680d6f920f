"""The descriptor pool and the reads that never wait: what the contract suite cannot see from outside."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.base.limits import DESCRIPTORS_INTERNAL_MAX, DESCRIPTORS_INTERNAL_MIN
from moldau.runtime.real import files
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import PLAIN, Features
from moldau.runtime.real.files import RealFile
from moldau.runtime.real.process import descriptor_limit

MEGABYTE = 1 << 20


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk(Features.detect(), open_files_max=4)
    yield disk
    disk.close()


def open_files(disk: RealDisk, folder: Path, count: int) -> list[RealFile]:
    return [disk.open(str(folder / f"{number:03}"), create=True) for number in range(count)]


def in_thread(work: object, *args: object) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work(*args)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def test_an_existing_file_is_opened_at_first_use(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    file = disk.open(str(tmp_path / "file"))
    assert disk.pool.open_count == 0
    assert file.pread(10, 0) == b"content"
    assert disk.pool.open_count == 1


@pytest.mark.parametrize("syncs", [True, False])
def test_what_is_thrown_away_is_not_synced(
    syncs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(files, "sync_descriptor", synced.append)
    monkeypatch.setattr(os, "fsync", synced.append)
    disk = RealDisk(Features.detect(syncs=syncs))
    file = disk.open(str(tmp_path / "file"), create=True)
    file.pwrite(b"content", 0)
    file.sync()
    disk.write_atomic(str(tmp_path / "small"), b"content")
    disk.sync_folder(str(tmp_path))
    disk.close()
    assert bool(synced) is syncs
    assert (tmp_path / "file").read_bytes() == (tmp_path / "small").read_bytes() == b"content"


def test_a_file_in_use_gets_a_second_chance(disk: RealDisk, tmp_path: Path) -> None:
    first, *others = open_files(disk, tmp_path, 4)
    # passes over all once, and takes the oldest that was not used
    others.append(disk.open(str(tmp_path / "x"), create=True))
    first.pwrite(b"x", 0)
    for number in range(20):
        first.pread(1, 0)
        others.append(disk.open(str(tmp_path / f"new-{number}"), create=True))
    assert first.fd >= 0
    assert disk.pool.open_count == 4


def test_a_descriptor_that_a_thread_uses_is_not_closed(disk: RealDisk, tmp_path: Path) -> None:
    pinned, *_ = open_files(disk, tmp_path, 4)
    entered, leave = threading.Event(), threading.Event()

    def use(fd: int) -> None:
        entered.set()
        assert leave.wait(10)
        os.fstat(fd)

    thread = threading.Thread(target=pinned.pinned, args=(use,))
    thread.start()
    assert entered.wait(10)
    fd = pinned.fd
    open_files(disk, tmp_path, 50)
    assert pinned.fd == fd
    pinned.close()
    os.fstat(fd)
    leave.set()
    thread.join()
    assert pinned.fd == -1
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_thread_that_finds_the_pool_full_opens_for_its_call_only(disk: RealDisk, tmp_path: Path) -> None:
    many = open_files(disk, tmp_path, 8)
    assert many[0].fd == -1
    in_thread(many[0].pwrite, b"from a thread", 0)
    assert many[0].fd == -1
    assert disk.pool.open_count == 4
    assert many[0].pread(20, 0) == b"from a thread"


def test_threads_and_the_loop_use_more_files_than_fit_at_once(disk: RealDisk, tmp_path: Path) -> None:
    many = open_files(disk, tmp_path, 40)

    def write_all(turn: int) -> None:
        for number, file in enumerate(many):
            assert file.pwrite(b"%03d" % number, 3 * turn) == 3

    threads = [threading.Thread(target=write_all, args=(turn,)) for turn in range(1, 5)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        write_all(0)
    for thread in threads:
        thread.join()
    for number, file in enumerate(many):
        assert file.pread(100, 0) == b"%03d" % number * 5


def test_a_process_without_descriptors_gives_up_half_of_the_pool(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.pool.bound = 64
    held = open_files(disk, tmp_path, 40)
    real_open, refusals = os.open, [errno.EMFILE]

    def refusing_open(path: str, flags: int, mode: int = 0o777) -> int:
        if refusals:
            raise OSError(refusals.pop(), "no descriptor left", path)
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing_open)
    file = disk.open(str(tmp_path / "one more"), create=True)
    assert file.pwrite(b"x", 0) == 1
    assert disk.pool.open_count == 21
    assert len(held) == 40


def test_a_file_that_nobody_has_any_more_gives_its_descriptor_back(disk: RealDisk, tmp_path: Path) -> None:
    kept, dropped, *_ = open_files(disk, tmp_path, 2)
    fd = dropped.fd
    del dropped
    assert disk.pool.open_count == 1
    with pytest.raises(OSError):
        os.fstat(fd)
    assert kept.pread(1, 0) == b""


def test_the_bound_leaves_half_of_the_descriptors_to_connections() -> None:
    assert files.OPEN_FILES_MIN <= files.open_files_bound() <= max(16, descriptor_limit() // 2)


def test_a_use_after_the_file_was_removed_says_so_once_it_was_evicted(disk: RealDisk, tmp_path: Path) -> None:
    file, *_ = open_files(disk, tmp_path, 10)
    disk.remove(file.path)
    with pytest.raises(FileNotFoundError):
        file.pwrite(b"x", 0)
    assert not disk.exists(file.path)


def test_a_cold_page_is_not_waited_for(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "file"), create=True)
    if not hasattr(os, "posix_fadvise") or not file.nowait:
        pytest.skip("this system cannot tell cached from cold pages")
    file.pwrite(b"x" * MEGABYTE, 0)
    file.sync()
    os.posix_fadvise(file.descriptor(), 0, MEGABYTE, os.POSIX_FADV_DONTNEED)
    try:
        file.pread_nowait(MEGABYTE, 0)
    except BlockingIOError:
        file.warm(0, MEGABYTE)
        assert file.is_cached(0, MEGABYTE)
        assert file.pread_nowait(MEGABYTE, 0) == b"x" * MEGABYTE
    else:
        pytest.skip("this filesystem keeps its pages, or cannot tell")


@pytest.fixture
def cached_below(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A kernel that has a file's bytes in its cache up to a limit. (A real one starts to read what it is asked
    for, so what it has changes from call to call.)"""
    limit = {"bytes": 0}

    def preadv(fd: int, buffers: tuple[bytearray], position: int, flags: int) -> int:
        (buffer,) = buffers
        length = min(len(buffer), limit["bytes"] - position)
        if length <= 0 < os.fstat(fd).st_size - position:
            raise BlockingIOError(errno.EAGAIN, "not cached")
        data = os.pread(fd, max(0, length), position)
        buffer[: len(data)] = data
        return len(data)

    monkeypatch.setattr(files, "_preadv", preadv)
    return limit


@pytest.mark.skipif(
    not Features.detect().read_nowait, reason="this system cannot tell cached from cold pages"
)
def test_a_range_that_is_cached_in_part_is_not_cut_short(
    disk: RealDisk, tmp_path: Path, cached_below: dict[str, int]
) -> None:
    file = disk.open(str(tmp_path / "file"), create=True)
    file.pwrite(b"x" * 10_000, 0)
    cached_below["bytes"] = 4096
    assert file.pread_nowait(4096, 0) == b"x" * 4096
    with pytest.raises(BlockingIOError):
        file.pread_nowait(4097, 0)
    with pytest.raises(BlockingIOError):
        file.pread_nowait(1, 4096)
    assert file.pread_nowait(1, 10_000) == b""
    cached_below["bytes"] = 10_000
    assert file.pread_nowait(100_000, 0) == b"x" * 10_000


@pytest.mark.skipif(
    not Features.detect().read_nowait, reason="this system cannot tell cached from cold pages"
)
def test_the_probe_looks_at_each_piece_of_readahead_and_at_the_last_byte(
    disk: RealDisk, tmp_path: Path, cached_below: dict[str, int]
) -> None:
    file = disk.open(str(tmp_path / "file"), create=True)
    file.pwrite(b"x" * MEGABYTE, 0)
    for cached, expected in ((0, False), (MEGABYTE // 2, False), (MEGABYTE - 1, False), (MEGABYTE, True)):
        cached_below["bytes"] = cached
        assert file.is_cached(0, MEGABYTE) is expected
    cached_below["bytes"] = 1000
    assert file.is_cached(0, 1000)
    assert not file.is_cached(0, 1001)


@pytest.mark.parametrize("number", sorted(files.NOWAIT_UNSUPPORTED))
def test_a_filesystem_that_cannot_tell_is_read_the_plain_way(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unsupported(*args: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "_preadv", unsupported)
    file = disk.open(str(tmp_path / "file"), create=True)
    file.pwrite(b"content", 0)
    assert file.is_cached(0, 7)
    assert file.pread_nowait(100, 3) == b"tent"


def test_the_plain_file_shares_its_position_with_no_other_thread(tmp_path: Path) -> None:
    disk = RealDisk(PLAIN)
    file = disk.open(str(tmp_path / "file"), create=True)
    file.pwrite(bytes(range(200)), 0)
    wrong: list[int] = []

    def read_one(position: int) -> None:
        for _ in range(500):
            if file.pread(1, position) != bytes([position]):
                wrong.append(position)

    threads = [threading.Thread(target=read_one, args=(position,)) for position in (3, 50, 199)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    disk.close()


def test_write_atomic_leaves_the_old_file_when_it_fails(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "checkpoint")
    disk.write_atomic(path, b"old")

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(disk.pool, "sync_descriptor", failing)
    with pytest.raises(OSError, match="broken"):
        disk.write_atomic(path, b"new")
    assert disk.read(path) == b"old"
    assert disk.list(str(tmp_path)) == ["checkpoint"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has one kind of lock only")
def test_a_folder_that_apache_kafka_has_locked_is_not_taken(disk: RealDisk, tmp_path: Path) -> None:
    """A JVM takes POSIX locks, which flock does not see."""
    path = tmp_path / ".lock"
    hold = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            disk.lock(str(path))
        holder.communicate(b"\n", timeout=30)
    disk.lock(str(path)).release()


@pytest.mark.parametrize("limit", [128, 256, 1024, 4096, 1 << 20])
def test_files_connections_and_internals_share_the_descriptors(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "descriptor_limit", lambda: limit)
    used = files.open_files_bound() + files.accepted_streams_bound()
    assert limit - DESCRIPTORS_INTERNAL_MAX <= used <= limit - DESCRIPTORS_INTERNAL_MIN
    assert files.accepted_streams_bound() >= limit // 4
