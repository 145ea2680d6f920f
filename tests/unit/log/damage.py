"""A small data folder to damage, and ways to damage a file in it."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable

from log_world import FOLDER, NOW_MS, PARTITION, World, append, batch, config

from moldau.log.inspect.findings import Finding, Seen
from moldau.log.inspect.folder import verify_folder

SIZE = len(batch(b"x" * 100))
"""Of each batch."""
HERE = f"{FOLDER}/{PARTITION}"
SEGMENT = 10 * SIZE
BASES = (0, 10, 20, 30, 40)
Damage = Callable[[World, str], object]
"""What is done to the file at a path."""


def log_file(base_offset: int, suffix: str = ".log") -> str:
    return f"{HERE}/{base_offset:020d}{suffix}"


async def folder(*, clean: bool = True, count: int = 50) -> World:
    """Five segments of ten batches with one record each, three producers, three leader epochs."""
    world = World(config(segment_bytes=str(SEGMENT), index_interval_bytes="300"))
    log = await world.new_log()
    for i in range(count):
        sent = batch(
            b"x" * 100, timestamp=NOW_MS + i, producer_id=i % 3, producer_epoch=0, base_sequence=i // 3
        )
        assert append(log, sent, epoch=i // 20).base_offset == i
    await log.flush()
    if clean:
        await world.manager.close()
    else:
        await world.manager.write_checkpoints()
        world.disk.crash(random.Random(0))
    return world


def verify(world: World, **options: object) -> list[Finding]:
    known = {PARTITION.topic: uuid.UUID(int=7)}
    return list(verify_folder(world.disk, FOLDER, Seen(), topic_ids=known, **options))  # type: ignore[arg-type]


def show(found: list[Finding]) -> str:
    return "\n".join(f"{f.severity.value} {f.kind.value} {f.path} {f.position}: {f.what}" for f in found)


def flip(position: int, mask: int = 0x10) -> Damage:
    def damage(world: World, path: str) -> None:
        world.disk.files[path][position] ^= mask

    return damage


def put(start: int, stop: int | None, content: bytes) -> Damage:
    """Other bytes in the place of some; `stop` None: up to the end."""

    def damage(world: World, path: str) -> None:
        world.disk.files[path][start:stop] = content

    return damage


def cut(size: int) -> Damage:
    return put(size, None, b"")


def more(content: bytes) -> Damage:
    return lambda world, path: world.disk.files[path].extend(content)


def become(content: bytes) -> Damage:
    """A new file, or other content."""

    def damage(world: World, path: str) -> None:
        world.disk.files[path] = bytearray(content)

    return damage


def zero(start: int = 0, stop: int | None = None) -> Damage:
    def damage(world: World, path: str) -> None:
        end = len(world.disk.files[path]) if stop is None else stop
        put(start, end, bytes(end - start))(world, path)

    return damage


def swap_with(other: str) -> Damage:
    def damage(world: World, path: str) -> None:
        files = world.disk.files
        files[path], files[other] = files[other], files[path]

    return damage


def copy_of(other: str) -> Damage:
    return lambda world, path: become(bytes(world.disk.files[other]))(world, path)


def gone(world: World, path: str) -> None:
    del world.disk.files[path]


def make_folder(world: World, path: str) -> None:
    world.disk.make_folder(path)


def offset_entry(number: int, relative_offset: int, position: int) -> Damage:
    return put(8 * number, 8 * number + 8, struct.pack(">ii", relative_offset, position))


def time_entry(number: int, timestamp: int, relative_offset: int) -> Damage:
    return put(12 * number, 12 * number + 12, struct.pack(">qi", timestamp, relative_offset))


def transaction(first: int, last: int) -> bytes:
    return struct.pack(">hqqqq", 0, 1, first, last, last + 1)
