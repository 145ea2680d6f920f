"""Compressed batches into one buffer: the direct way and the other one give the same, and refuse the same."""

from __future__ import annotations

import ctypes
import random
import tracemalloc
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")

from moldau.records.compression import Codec, DecompressionRefused, compress
from moldau.spark.blocks import direct, unfolding
from moldau.spark.blocks.unfolding import DIRECT_BYTES_MAX, Unfolded

CODECS = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
DIRECT = (Codec.LZ4, Codec.ZSTD)
NO_BYTES = b"\0" * 8
SKIPPED = bytes.fromhex("502a4d18") + (5).to_bytes(4, "little") + b"aside"
"""A frame without content, as both formats have it."""


@pytest.fixture(params=["direct", "other"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "other":
        monkeypatch.setattr(unfolding, "direct", lambda codec: None)
    yield request.param


def texts(size: int) -> bytes:
    return b"".join(b"%d: the Vltava " % number for number in range(size // 10 + 1))[:size]


def outcome(codec: Codec, packed: bytes) -> bytes | None:
    unfolded = Unfolded()
    try:
        unfolded.put(codec, memoryview(packed))
    except DecompressionRefused:
        return None
    return bytes(unfolded.data)


def outcome_by_cramjam(codec: Codec, packed: bytes) -> bytes | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unfolding, "direct", lambda codec: None)
        return outcome(codec, packed)


def lz4_frames(data: bytes) -> Iterator[bytes]:
    """One of each kind of frame."""
    frame = pytest.importorskip("lz4.frame")
    for number in range(4 * 2**4):
        yield frame.compress(
            data,
            block_size=frame.BLOCKSIZE_MAX64KB + number // 16,
            block_linked=bool(number & 1),
            content_checksum=bool(number & 2),
            block_checksum=bool(number & 4),
            store_size=bool(number & 8),
        )


def zstd_frames(data: bytes) -> Iterator[bytes]:
    zstandard = pytest.importorskip("zstandard")
    for number in range(2**3):
        parameters = zstandard.ZstdCompressionParameters(
            write_checksum=number & 1,
            write_content_size=number >> 1 & 1,
            window_log=27 if number & 4 else 17,
            compression_level=3,
        )
        compressor = zstandard.ZstdCompressor(compression_params=parameters)
        yield compressor.compress(data)
        stream = compressor.compressobj()
        yield stream.compress(data) + stream.flush()


def frames(codec: Codec, data: bytes) -> list[bytes]:
    return [*(lz4_frames(data) if codec is Codec.LZ4 else zstd_frames(data)), compress(codec, data, None)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 1000, 16_000, 65_536, 65_537, DIRECT_BYTES_MAX, 3 * DIRECT_BYTES_MAX])
def test_what_was_packed_comes_out_one_after_the_other(codec: Codec, size: int, way: str) -> None:
    unfolded = Unfolded()
    unfolded.put(codec, memoryview(compress(codec, texts(size), None)))
    unfolded.put(codec, memoryview(compress(codec, b"behind it", None)))
    assert bytes(unfolded.data) == texts(size) + b"behind it"


def test_the_buffer_grows_and_what_was_seen_of_it_stays(way: str) -> None:
    unfolded = Unfolded()
    packed = memoryview(compress(Codec.LZ4, texts(600_000), None))
    unfolded.put(Codec.LZ4, packed)
    seen = unfolded.data
    for _ in range(10):
        unfolded.put(Codec.LZ4, packed)
    assert bytes(seen) == texts(600_000)
    assert bytes(unfolded.data) == 11 * texts(600_000)


@pytest.mark.parametrize("codec", DIRECT)
@pytest.mark.parametrize("size", [0, 16_000, 200_000])
def test_all_kinds_of_frames_are_taken(codec: Codec, size: int, way: str) -> None:
    for packed in frames(codec, texts(size)):
        assert outcome(codec, packed) == texts(size)


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused(codec: Codec, way: str) -> None:
    packed = bytearray(compress(codec, texts(5000), None))
    for damaged in (b"", packed[:-5], packed[:3], b"\0" * 50, packed[:20] + b"\xff" * 40 + packed[60:]):
        with pytest.raises(DecompressionRefused):
            Unfolded().put(codec, memoryview(bytes(damaged)))


@pytest.mark.parametrize("codec", DIRECT)
@pytest.mark.parametrize("seed", range(4))
def test_damage_has_the_same_outcome_by_both_ways(codec: Codec, seed: int) -> None:
    """And the decoder, which is used again, is as good as before."""
    unfolder, target = direct.direct(codec), ctypes.create_string_buffer(1 << 16)
    if unfolder is None:
        pytest.skip("its package is not installed")
    draw = random.Random(seed)
    whole = frames(codec, texts(3000)) + frames(codec, draw.randbytes(300) + texts(70_000))
    for _ in range(1500):
        packed = bytearray(draw.choice(whole))
        for _ in range(draw.choice((1, 1, 2, 10))):
            at = draw.randrange(min(len(packed), draw.choice((12, 12, 1 << 30))))
            kind = draw.randrange(4)
            if kind == 0:
                packed[at] = draw.randrange(256)
            elif kind == 1:
                packed[at] ^= 1 << draw.randrange(8)
            elif kind == 2:
                packed[at : at + draw.randrange(20)] = draw.randbytes(draw.randrange(20))
            else:
                del packed[at:]
            packed = packed or bytearray(1)
        assert outcome(codec, bytes(packed)) == outcome_by_cramjam(codec, bytes(packed)), packed.hex()
        assert unfolder.unfold(memoryview(whole[0]), ctypes.addressof(target), len(target)) == 3000
        assert target.raw[:3000] == texts(3000)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec: Codec, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfolding, "DECOMPRESSED_BYTES_MAX", 1 << 20)
    with pytest.raises(DecompressionRefused):
        Unfolded().put(codec, memoryview(compress(codec, bytes(8 << 20), None)))


def test_a_size_that_is_a_lie_costs_no_memory(way: str) -> None:
    """A frame of zstd may say in its head how much it holds: here a terabyte."""
    frame = bytes.fromhex("28b52ffd") + b"\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00"
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionRefused):
            Unfolded().put(Codec.ZSTD, memoryview(frame + b"\0" * 20))
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", DIRECT)
def test_what_is_more_than_one_frame_is_the_same_by_both_ways(codec: Codec) -> None:
    one, two = compress(codec, b"one", None), compress(codec, b"two", None)
    for packed in (
        one + two,
        one + b"\0",
        one + b"rest of it",
        SKIPPED,
        SKIPPED + one,
        one + SKIPPED,
        one + two[:-3],
    ):
        assert outcome(codec, packed) == outcome_by_cramjam(codec, packed), packed


@pytest.mark.parametrize("exponent", range(32))
def test_windows_of_zstd_are_the_same_by_both_ways(exponent: int) -> None:
    """A frame with one raw block, in a window of up to 3.75 TB."""
    for mantissa in range(8):
        head = bytes.fromhex("28b52ffd") + bytes([0, exponent << 3 | mantissa])
        packed = head + (5 << 3 | 1).to_bytes(3, "little") + b"value"
        assert outcome(Codec.ZSTD, packed) == outcome_by_cramjam(Codec.ZSTD, packed)


@pytest.mark.parametrize("codec", DIRECT)
@pytest.mark.parametrize("size", [1, 100, 1000, 65_536, 200_000])
def test_the_direct_way_writes_no_further_than_it_may(codec: Codec, size: int) -> None:
    unfolder = direct.direct(codec)
    if unfolder is None:
        pytest.skip("its package is not installed")
    for packed in frames(codec, texts(size)):
        for room in (size + 1, size, size - 1, size // 2, 0):
            target = ctypes.create_string_buffer(room + len(NO_BYTES))
            found = unfolder.unfold(memoryview(packed), ctypes.addressof(target), room)
            assert target.raw[room:] == NO_BYTES
            assert found == size if room > size else found < 0 or found == room == size
            assert found < 0 or target.raw[:size] == texts(size)


def test_the_direct_way_is_there_where_its_packages_are() -> None:
    pytest.importorskip("zstandard")
    pytest.importorskip("lz4")
    assert all(direct.direct(codec) for codec in DIRECT)
    assert direct.direct(Codec.GZIP) is None


@pytest.mark.parametrize("codec", DIRECT)
def test_without_its_packages_there_is_no_direct_way(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "find_spec", lambda package: None)
    assert direct.direct.__wrapped__(codec) is None


@pytest.mark.parametrize("codec", DIRECT)
def test_a_library_that_shows_no_names_is_left_out(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "library_of", lambda package, module: ctypes.pythonapi)
    assert direct.direct.__wrapped__(codec) is None
