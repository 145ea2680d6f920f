"""Whatever byte is changed, wherever a file is cut: verifying tells, and tells where."""

from __future__ import annotations

import asyncio
import struct

from damage import BASES, SEGMENT, SIZE, folder, log_file, show, verify
from hypothesis import given, settings
from hypothesis import strategies as st
from log_world import World

from moldau.log.inspect.findings import Severity

SOUND = asyncio.run(folder())
LOGS = [log_file(base) for base in BASES]
CHECKED = [path for path in SOUND.disk.files if path.endswith((".index", ".timeindex", ".snapshot"))]


def damaged(path: str, content: bytes | bytearray) -> World:
    """The sound folder with another content of one file."""
    world = World()
    world.disk.files = {**SOUND.disk.files, path: bytearray(content)}
    world.disk.folders = set(SOUND.disk.folders)
    return world


def is_told(world: World, path: str, position: int) -> bool:
    """Damage in the batch that a position lies in."""
    found = verify(world)
    there = position // SIZE * SIZE
    return any(f.severity is Severity.DAMAGE and (f.path, f.position) == (path, there) for f in found)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LOGS), st.integers(0, SEGMENT - 1), st.integers(1, 255))
def test_a_changed_byte_of_a_log_is_always_found_in_its_batch(path: str, position: int, mask: int) -> None:
    content = bytearray(SOUND.disk.files[path])
    content[position] ^= mask
    assert is_told(damaged(path, content), path, position)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(LOGS), st.integers(0, SEGMENT - 1))
def test_a_log_that_is_cut_off_is_always_found(path: str, size: int) -> None:
    world = damaged(path, SOUND.disk.files[path][:size])
    if size % SIZE:
        assert is_told(world, path, size)
    else:
        found = verify(world)
        assert any(f.severity is Severity.DAMAGE for f in found), show(found)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(LOGS), st.integers(0, SEGMENT), st.binary(min_size=1, max_size=400))
def test_bytes_that_were_put_in_are_always_found(path: str, position: int, more: bytes) -> None:
    whole = SOUND.disk.files[path]
    changed = whole[:position] + more + whole[position:]
    first_other = next(i for i, byte in enumerate(changed) if i >= len(whole) or byte != whole[i])
    assert is_told(damaged(path, changed), path, first_other)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(LOGS), st.integers(0, SEGMENT - 1), st.integers(1, 3 * SIZE))
def test_bytes_that_were_taken_out_are_always_found(path: str, position: int, count: int) -> None:
    whole = SOUND.disk.files[path]
    found = verify(damaged(path, whole[:position] + whole[position + count :]))
    assert any(f.severity is Severity.DAMAGE for f in found), show(found)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CHECKED), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_of_an_index_or_snapshot_is_found_or_harmless(
    path: str, position: int, mask: int
) -> None:
    content = bytearray(SOUND.disk.files[path])
    content[position % len(content)] ^= mask
    found = verify(damaged(path, content))
    assert any(f.path == path for f in found) or leads_right(path, content), show(found)


def leads_right(path: str, content: bytearray) -> bool:
    """Whether an offset index with some other offset in it still leads every reader before what it wants."""
    if not path.endswith(".index"):
        return False
    entries = list(struct.iter_unpack(">ii", content))
    return entries == sorted(entries) and all(
        at % SIZE == 0 and offset >= at // SIZE for offset, at in entries
    )
