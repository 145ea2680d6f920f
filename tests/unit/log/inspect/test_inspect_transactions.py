"""Verifying indexes of aborted transactions: each has an entry for each marker that aborted something, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_world import FOLDER, NOW_MS, PARTITION, World, append, batch, config

from moldau.log.inspect.findings import Finding, Kind, Seen, Severity
from moldau.log.inspect.folder import verify_folder
from moldau.log.log import Log
from moldau.log.transactions import Marker
from moldau.log.transactions_index import ENTRY

PATH = f"{FOLDER}/{PARTITION}/{0:020d}.txnindex"


async def a_log() -> World:
    """Two segments, with two aborted transactions and one that was committed."""
    world = World(config(segment_bytes="2000"))
    log = await world.new_log()
    append(log, batch(b"plain"))
    for producer_id, commit in ((1, False), (2, True), (3, False)):
        transact(log, producer_id, commit=commit)
    log.roll(NOW_MS)
    transact(log, 4, commit=False)
    await world.manager.close()
    return world


def transact(log: Log, producer_id: int, *, commit: bool) -> None:
    guard = log.producing.begin_verification(producer_id, 0, 0, False)
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    data = memoryview(bytearray(batch(b"v", transactional=True, **fields)))
    assert not log.append(data, 0, len(data), 0, NOW_MS, True, guard).error
    assert not log.producing.append_marker(Marker(commit, 0), producer_id, 0, 0, NOW_MS).error


def verify(world: World) -> list[Finding]:
    return list(verify_folder(world.disk, FOLDER, Seen(), records=True))  # type: ignore[arg-type]


async def test_a_sound_index_is_not_complained_of() -> None:
    assert verify(await a_log()) == []


def entry(content: bytes, number: int, **fields: int) -> bytes:
    """The index with other fields in one of its entries."""
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    at = number * ENTRY.size
    found = dict(zip(names, ENTRY.unpack_from(content, at), strict=True))
    return content[:at] + ENTRY.pack(*(found | fields).values()) + content[at + ENTRY.size :]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes | None], Kind, str]] = {
    "missing": (lambda content: None, Kind.INDEX_MISSING, "producer 1 that was aborted at offset 2"),
    "empty": (lambda content: b"", Kind.INDEX_SHORT, "producer 1 that was aborted at offset 2"),
    "cut between entries": (
        lambda content: content[: ENTRY.size],
        Kind.INDEX_SHORT,
        "producer 3 that was aborted at offset 6",
    ),
    "another producer": (
        lambda content: entry(content, 0, producer_id=9),
        Kind.INDEX_SHORT,
        "it was producer 1, at 1",
    ),
    "a committed one": (
        lambda content: content[: ENTRY.size] + ENTRY.pack(0, 2, 3, 4, 5) + content[ENTRY.size :],
        Kind.INDEX_ENTRY,
        "aborted at offset 4, where no marker says so",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_what_only_the_batches_tell_is_found_and_its_advice_helps(name: str) -> None:
    world = await a_log()
    good = bytes(world.disk.files[PATH])
    damage, kind, what = DAMAGES[name]
    content = damage(good)
    if content is None:
        world.disk.remove(PATH)
    else:
        world.disk.files[PATH] = bytearray(content)
    (found,) = [finding for finding in verify(world) if finding.path == PATH]
    assert (found.severity, found.kind) == (Severity.DAMAGE, kind)
    assert what in found.what and "a file with a single byte in its place" in found.advice

    world.disk.files[PATH] = bytearray(b"x")
    assert [f.severity for f in verify(world) if f.path == PATH] == [Severity.REPAIR]
    await world.open()
    await world.manager.close()
    assert bytes(world.disk.files[PATH]) == good
    assert verify(world) == []
