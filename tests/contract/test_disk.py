"""Disk and File: every sentence of their ports, over every engine."""

from __future__ import annotations

import pytest

from moldau.runtime.ports import Disk, File, Runtime

from .conftest import Engine


def on_disk(engine: Engine) -> Disk:
    """The engine's disk, for tests that need no loop."""

    async def main(runtime: Runtime) -> Disk:
        return runtime.disk

    return engine.run(main)


def a_file(engine: Engine, content: bytes = b"") -> File:
    file = on_disk(engine).open(f"{engine.folder}/file", create=True)
    assert file.pwrite(content, 0) == len(content)
    return file


def test_what_was_written_is_read_back_by_position(engine: Engine) -> None:
    file = a_file(engine, b"0123456789")
    assert file.pwrite(memoryview(b"-abc-")[1:4], 4) == 3
    assert file.pwrite(bytearray(b"!"), 10) == 1
    assert file.pread(11, 0) == b"0123abc789!"
    assert file.pread(3, 4) == b"abc"
    assert bytes(file.pread_nowait(3, 4)) == b"abc"
    assert file.size() == 11
    file.close()


@pytest.mark.parametrize("read", ["pread", "pread_nowait"])
def test_reads_give_fewer_bytes_only_at_the_end_of_the_file(engine: Engine, read: str) -> None:
    file = a_file(engine, b"0123456789")
    assert bytes(getattr(file, read)(100, 7)) == b"789"
    assert bytes(getattr(file, read)(100, 10)) == b""
    assert bytes(getattr(file, read)(100, 1000)) == b""
    assert bytes(getattr(file, read)(0, 0)) == b""
    file.close()


def test_a_large_range_is_read_whole(engine: Engine) -> None:
    content = bytes(range(256)) * 8192
    file = a_file(engine, content)
    assert file.pread(len(content), 0) == content
    assert bytes(file.pread_nowait(len(content), 0)) == content
    file.close()


def test_bytes_that_were_skipped_are_zeros(engine: Engine) -> None:
    file = a_file(engine, b"head")
    file.pwrite(b"tail", 10_000)
    assert file.size() == 10_004
    assert file.pread(8, 2) == b"ad" + bytes(6)
    assert file.pread(8, 9_998) == bytes(2) + b"tail"
    file.close()


def test_truncating_cuts_or_extends_with_zeros(engine: Engine) -> None:
    file = a_file(engine, b"0123456789")
    file.truncate(4)
    assert (file.size(), file.pread(10, 0)) == (4, b"0123")
    file.truncate(6)
    assert (file.size(), file.pread(10, 0)) == (6, b"0123\0\0")
    file.pwrite(b"x", 6)
    assert file.pread(10, 0) == b"0123\0\0x"
    file.close()


def test_what_was_just_written_is_cached_and_warming_keeps_it_so(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open(f"{engine.folder}/file", create=True)
        file.pwrite(bytes(500_000), 0)
        assert file.is_cached(0, 500_000)
        assert file.is_cached(499_999, 1)
        await runtime.tasks.in_thread(file.warm, 0, 500_000)
        await runtime.tasks.in_thread(file.warm, 400_000, 1_000_000)
        assert file.is_cached(0, 500_000)
        assert file.is_cached(0, 0)
        file.close()

    engine.run(main)


def test_sync_runs_in_a_thread_beside_writes(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.disk.open(f"{engine.folder}/file", create=True)
        file.pwrite(b"before", 0)
        syncing = runtime.tasks.in_thread(file.sync)
        file.pwrite(b"after", 6)
        await syncing
        assert file.pread(20, 0) == b"beforeafter"
        file.close()

    engine.run(main)


def test_a_closed_file_cannot_be_used_and_twice_is_once(engine: Engine) -> None:
    file = a_file(engine, b"x")
    file.close()
    file.close()
    for use in (lambda: file.pread(1, 0), lambda: file.pwrite(b"x", 0), file.size, file.sync):
        with pytest.raises(ValueError, match="is closed"):
            use()


def test_closing_during_a_sync_is_safe(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        for number in range(20):
            file = runtime.disk.open(f"{engine.folder}/{number}", create=True)
            file.pwrite(b"x", 0)
            syncing = runtime.tasks.in_thread(file.sync)
            file.close()
            try:
                await syncing
            except ValueError:
                pass  # closed before the thread began

    engine.run(main)


def test_opening_what_is_absent_is_an_error_unless_it_is_to_be_created(engine: Engine) -> None:
    disk = on_disk(engine)
    path = f"{engine.folder}/new"
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    assert not disk.exists(path)
    file = disk.open(path, create=True)
    assert file.path == path
    assert disk.exists(path)
    assert disk.size(path) == 0
    file.pwrite(b"kept", 0)
    file.close()
    assert disk.open(path, create=True).pread(10, 0) == b"kept"
    with pytest.raises(FileNotFoundError):
        disk.open(f"{engine.folder}/absent/new", create=True)
    with pytest.raises(IsADirectoryError):
        disk.open(engine.folder)


def test_two_handles_see_one_file(engine: Engine) -> None:
    disk = on_disk(engine)
    one = disk.open(f"{engine.folder}/file", create=True)
    other = disk.open(f"{engine.folder}/file")
    one.pwrite(b"shared", 0)
    assert other.pread(10, 0) == b"shared"
    one.close()
    assert other.pread(10, 0) == b"shared"
    other.close()


def test_many_more_files_than_descriptors_can_be_in_use(engine: Engine) -> None:
    disk = on_disk(engine)
    pool = getattr(disk, "pool", None)
    if pool is not None:
        pool.bound = 16
    files = [disk.open(f"{engine.folder}/{number}", create=True) for number in range(200)]
    for turn in range(3):
        for number, file in enumerate(files):
            file.pwrite(b"%03d" % number, 3 * turn)
    for number, file in enumerate(files):
        assert file.pread(9, 0) == b"%03d" % number * 3
    if pool is not None:
        assert pool.open_count <= 16
    for file in files:
        file.close()
    if pool is not None:
        assert pool.open_count == 0


def test_folders_are_made_with_their_parents_and_listed_in_order(engine: Engine) -> None:
    disk = on_disk(engine)
    folder = f"{engine.folder}/a/b/c"
    disk.make_folder(folder)
    disk.make_folder(folder)
    for name in ("z", "a", "B", "10", "9"):
        disk.open(f"{folder}/{name}", create=True).close()
    assert disk.list(folder) == ["10", "9", "B", "a", "z"]
    assert disk.list(f"{engine.folder}/a") == ["b"]
    assert disk.is_folder(folder)
    assert not disk.is_folder(f"{folder}/a")
    assert not disk.is_folder(f"{folder}/absent")
    with pytest.raises(FileExistsError):
        disk.make_folder(f"{folder}/a")
    with pytest.raises(FileNotFoundError):
        disk.list(f"{folder}/absent")
    with pytest.raises(NotADirectoryError):
        disk.list(f"{folder}/a")


def test_renaming_replaces_a_file_and_moves_a_folder_whole(engine: Engine) -> None:
    disk = on_disk(engine)
    root = engine.folder
    disk.make_folder(f"{root}/topic-0")
    disk.write_atomic(f"{root}/topic-0/new", b"new")
    disk.write_atomic(f"{root}/topic-0/old", b"old")
    disk.rename(f"{root}/topic-0/new", f"{root}/topic-0/old")
    disk.rename(f"{root}/topic-0", f"{root}/topic-0.deleted")
    assert not disk.exists(f"{root}/topic-0")
    assert disk.list(f"{root}/topic-0.deleted") == ["old"]
    assert disk.read(f"{root}/topic-0.deleted/old") == b"new"
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/absent", f"{root}/other")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/topic-0.deleted/old", f"{root}/absent/other")


def test_a_renamed_file_is_used_on_and_leaves_its_name_to_another(engine: Engine) -> None:
    disk = on_disk(engine)
    file = a_file(engine, b"old")
    old_path, new_path = file.path, f"{engine.folder}/renamed"
    file.rename(new_path)
    assert (file.path, file.pread(9, 0)) == (new_path, b"old")
    other = disk.open(old_path, create=True)
    other.pwrite(b"new", 0)
    assert file.pwrite(b"er", 3) == 2
    assert (disk.read(new_path), disk.read(old_path)) == (b"older", b"new")


def test_a_file_that_cannot_be_renamed_keeps_its_name(engine: Engine) -> None:
    file = a_file(engine, b"here")
    with pytest.raises(OSError):
        file.rename(f"{engine.folder}/absent/name")
    assert file.pread(4, 0) == b"here"


def test_removing_takes_a_file_or_a_whole_tree(engine: Engine) -> None:
    disk = on_disk(engine)
    root = engine.folder
    disk.make_folder(f"{root}/tree/branch")
    disk.write_atomic(f"{root}/tree/branch/leaf", b"x")
    disk.write_atomic(f"{root}/tree/leaf", b"x")
    disk.write_atomic(f"{root}/file", b"x")
    disk.remove(f"{root}/file")
    assert not disk.exists(f"{root}/file")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{root}/file")
    disk.remove_tree(f"{root}/tree")
    assert disk.list(root) == []
    with pytest.raises(FileNotFoundError):
        disk.remove_tree(f"{root}/tree")


def test_write_atomic_replaces_the_whole_file_and_leaves_nothing_beside_it(engine: Engine) -> None:
    disk = on_disk(engine)
    path = f"{engine.folder}/checkpoint"
    disk.write_atomic(path, b"first, and rather long")
    disk.write_atomic(path, b"second")
    assert disk.read(path) == b"second"
    disk.write_atomic(path, b"")
    assert disk.read(path) == b""
    assert disk.list(engine.folder) == ["checkpoint"]
    with pytest.raises(FileNotFoundError):
        disk.write_atomic(f"{engine.folder}/absent/checkpoint", b"x")


def test_a_leftover_of_a_crash_does_not_disturb_write_atomic(engine: Engine) -> None:
    disk = on_disk(engine)
    path = f"{engine.folder}/checkpoint"
    leftover = disk.open(path + ".tmp", create=True)
    leftover.pwrite(b"half of something much longer", 0)
    leftover.close()
    disk.write_atomic(path, b"whole")
    assert disk.read(path) == b"whole"
    assert disk.list(engine.folder) == ["checkpoint"]


def test_sizes_and_times_follow_the_writes(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        disk = runtime.disk
        path = f"{engine.folder}/file"
        file = disk.open(path, create=True)
        file.pwrite(b"12345", 0)
        assert disk.size(path) == 5
        assert abs(disk.modified_ms(path) - runtime.clock.wall_ms()) < 60_000
        before = disk.modified_ms(path)
        await runtime.tasks.sleep(0.05)
        file.pwrite(b"67890", 5)
        assert disk.modified_ms(path) > before
        file.close()
        for missing in (disk.size, disk.modified_ms, disk.read):
            with pytest.raises(FileNotFoundError):
                missing(f"{engine.folder}/absent")

    engine.run(main)


def test_a_lock_is_held_by_one_until_it_is_released(engine: Engine) -> None:
    disk = on_disk(engine)
    path = f"{engine.folder}/.lock"
    lock = disk.lock(path)
    assert disk.exists(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.release()
    lock.release()
    assert disk.exists(path)
    disk.lock(path).release()


def test_a_synced_folder_and_its_free_space(engine: Engine) -> None:
    disk = on_disk(engine)
    disk.sync_folder(engine.folder)
    assert 0 < disk.free_bytes(engine.folder) <= disk.total_bytes(engine.folder)
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(f"{engine.folder}/absent")
