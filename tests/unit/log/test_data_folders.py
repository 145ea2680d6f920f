"""Several data folders at the start: missing, empty, unreadable, swapped, doubled; and how many threads open them."""

from __future__ import annotations

import errno
import logging
import uuid
from typing import Any

import pytest
from log_world import World, append, batch, read_all

from moldau.base.ids import TopicPartition
from moldau.log.folder import DataFolderError
from moldau.log.log import Log
from moldau.log.manager import LogManager

ONE, TWO = "/one", "/two"
PLACES = [TopicPartition("t", i) for i in range(4)]
IDS = {"t": uuid.UUID(int=7)}


async def filled(world: World) -> dict[str, uuid.UUID]:
    """Two logs in each of two folders, closed cleanly; the folders' directory ids."""
    manager = await world.open(folders=[ONE, TWO])
    for place in PLACES:
        append(manager.create(place, IDS["t"]), batch(str(place).encode()))
    await manager.close()
    ids = {folder.path: folder.directory_id for folder in manager.folders}
    return {path: directory_id for path, directory_id in ids.items() if directory_id is not None}


def gone(world: World, folder: str) -> None:
    world.disk.remove_tree(folder)
    world.disk.folders -= {path for path in world.disk.folders if path.startswith(folder)}


async def reopened(world: World, **options: Any) -> LogManager:
    return await world.open(folders=[ONE, TWO], **options)


def served(manager: LogManager) -> list[TopicPartition]:
    for place, log in manager.logs.items():
        assert [record.value for record in read_all(log)] == [str(place).encode()]
    return sorted(manager.logs)


async def test_a_folder_that_is_missing_or_empty_is_not_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    for is_missing in (True, False):
        world = World()
        known = await filled(world)
        gone(world, TWO)
        if not is_missing:
            world.disk.make_folder(TWO)
        manager = await reopened(world, known_folders=known)
        assert served(manager) == PLACES[::2]
        assert manager.has_failed_folders
        assert "has lost what it held. Is its disk mounted?" in caplog.text
        assert world.disk.list(TWO) in ([], [".lock"]), "nothing is made in it"
        await manager.close()


async def test_an_empty_folder_begins_anew_when_someone_says_so() -> None:
    world = World()
    known = await filled(world)
    gone(world, TWO)
    world.disk.make_folder(TWO)
    world.disk.files[f"{TWO}/meta.properties"] = bytearray()
    manager = await reopened(world, known_folders=known)
    assert not manager.has_failed_folders
    assert manager.folders[1].directory_id not in (None, known[TWO])


async def test_a_folder_that_was_never_there_is_made() -> None:
    world = World()
    manager = await world.open(folders=[ONE])
    known = {ONE: manager.folders[0].directory_id or uuid.UUID(int=0)}
    await manager.close()
    manager = await reopened(world, known_folders=known)
    assert not manager.has_failed_folders
    assert world.disk.exists(f"{TWO}/meta.properties")


async def test_folders_that_changed_places_are_known_by_their_ids() -> None:
    world = World()
    known = await filled(world)
    world.disk.rename(TWO, "/three")
    world.disk.folders = {path.replace(TWO, "/three") for path in world.disk.folders}
    manager = await world.open(folders=[ONE, TWO, "/three"], known_folders=known)
    assert served(manager) == PLACES
    assert not manager.has_failed_folders


@pytest.mark.parametrize("operation", ["lock", "sync_folder"])
async def test_a_folder_that_cannot_be_used_leaves_the_others_in_use(operation: str) -> None:
    world = World()
    known = await filled(world)
    world.disk.failing[operation, f"{TWO}/.lock" if operation == "lock" else TWO] = errno.EIO
    manager = await reopened(world, known_folders=known)
    assert served(manager) == PLACES[::2]
    assert [folder.failure is not None for folder in manager.folders] == [False, True]


async def test_no_folder_that_can_be_used_is_one_clear_sentence_for_each() -> None:
    world = World()
    world.disk.failing["lock", ".lock"] = errno.EROFS
    with pytest.raises(DataFolderError, match=r"none of the data folders can be used\. data folder /one"):
        await reopened(world)
    assert not world.disk.locks


async def test_a_lost_id_is_made_anew_where_the_folder_is_known(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    known = await filled(world)
    world.disk.remove(f"{TWO}/meta.properties")
    manager = await reopened(world, known_folders=known)
    assert served(manager) == PLACES
    assert manager.folders[1].directory_id == known[TWO]
    assert "/two/meta.properties is missing; it is made anew" in caplog.text


async def test_partitions_of_nobody_are_refused() -> None:
    world = World()
    await filled(world)
    world.disk.remove(f"{TWO}/meta.properties")
    with pytest.raises(DataFolderError, match=r"holds partitions, but no meta\.properties"):
        await reopened(world)


async def test_a_folder_of_a_later_version_is_refused_with_what_to_do() -> None:
    world = World()
    known = await filled(world)
    world.disk.files[f"{TWO}/meta.properties"] = bytearray(b"version=2\nwhatever=1\n")
    with pytest.raises(
        DataFolderError, match=r"has version 2, not 1\. Run the version of Moldau that ran here"
    ):
        await reopened(world, known_folders=known)
    assert not world.disk.locks


@pytest.mark.parametrize("damage", [b"", b"\0" * 80, b"version=1\ncluster", b"garbage", b"\xff\xfe"])
async def test_a_damaged_id_is_refused_with_what_to_do(damage: bytes) -> None:
    world = World()
    known = await filled(world)
    world.disk.files[f"{TWO}/meta.properties"] = bytearray(damage)
    with pytest.raises(
        DataFolderError, match=r"/two/meta.properties .*\. Restore it from a copy; or remove it"
    ):
        await reopened(world, known_folders=known)
    assert not world.disk.locks


async def test_a_partition_in_two_folders_is_served_from_the_one_with_the_topics_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await filled(world)
    for path in [p for p in world.disk.files if p.startswith(f"{ONE}/t-0/")]:
        copy = path.replace(ONE, TWO)
        world.disk.files[copy] = bytearray(world.disk.files[path])
    world.disk.folders.add(f"{TWO}/t-0")
    first = f"{ONE}/t-0/partition.metadata"
    world.disk.files[first] = bytearray(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEw")
    with caplog.at_level(logging.ERROR):
        manager = await reopened(world, topic_id_of=IDS.get)
    assert manager.logs[PLACES[0]].folder == f"{TWO}/t-0"
    assert "lies in /two/t-0 and in /one/t-0: the latter is left alone" in caplog.text


async def test_a_log_that_is_not_this_topics_is_set_aside_and_not_deleted() -> None:
    world = World()
    await filled(world)
    manager = await reopened(world)
    manager.set_aside(PLACES[0])
    (stray,) = [name for name in world.disk.list(ONE) if name.endswith("-stray")]
    assert world.disk.files[f"{ONE}/{stray}/{0:020d}.log"]
    assert manager.create(PLACES[0], None).next_offset == 0
    await manager.close()
    assert sorted((await reopened(world)).logs) == PLACES


@pytest.mark.parametrize(
    ("clean", "threads", "at_once"), [(True, 3, 3), (False, 3, 3), (False, 1, 1), (True, 1, 1)]
)
async def test_so_many_threads_open_the_logs_of_each_folder(clean: bool, threads: int, at_once: int) -> None:
    world = World()
    manager = await world.open(folders=[ONE, TWO])
    for i in range(40):
        append(manager.create(TopicPartition("t", i), None), batch(b"x"))
    if clean:
        await manager.close()
    else:
        manager.release()
    in_thread, under_way, most = world.tasks.in_thread, 0, 0

    def count(work: Any, *arguments: Any) -> Any:
        nonlocal under_way, most
        is_opening = work.__name__ == "_load"
        under_way += is_opening
        most = max(most, under_way)
        future = in_thread(work, *arguments)

        def done(_: object) -> None:
            nonlocal under_way
            under_way -= is_opening

        future.add_done_callback(done)
        return future

    world.tasks.in_thread = count  # type: ignore[method-assign]
    manager = await world.open(folders=[ONE, TWO], recovery_threads=threads)
    assert len(manager.logs) == 40
    assert most == 2 * at_once


def offline(manager: LogManager, place: TopicPartition) -> Log:
    return manager.create_offline(place)


async def test_a_log_in_a_folder_that_is_away_is_offline_and_can_be_deleted() -> None:
    world = World()
    known = await filled(world)
    gone(world, TWO)
    manager = await reopened(world, known_folders=known)
    log = offline(manager, PLACES[1])
    assert log.folder.startswith(TWO)
    with pytest.raises(FileNotFoundError):
        append(log, batch(b"x"))
    manager.delete(PLACES[1])
    await manager.vacated(PLACES[1])
    assert manager.create(PLACES[1], None).folder.startswith(ONE), "a new topic goes where there is a disk"


async def test_a_folder_is_known_however_it_is_spelled() -> None:
    world = World()
    known = await filled(world)
    gone(world, TWO)
    manager = await world.open(folders=[f"{ONE}/", f"/other/..{TWO}"], known_folders=known)
    assert [folder.path for folder in manager.folders] == [ONE, TWO]
    assert served(manager) == PLACES[::2]
    assert manager.has_failed_folders
    await manager.close()
