"""Compressed batches into one buffer: the quick way and the other one give the same, and refuse the same."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from moldau.records.compression import Codec, DecompressionRefused, compress
from moldau.spark.blocks import unfolding
from moldau.spark.blocks.unfolding import QUICK_BYTES_MAX, Unfolded

CODECS = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
QUICK = (Codec.LZ4, Codec.ZSTD)


@pytest.fixture(params=["quick", "other"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "other":
        monkeypatch.setattr(unfolding, "_QUICK", {})
    yield request.param


def texts(size: int) -> bytes:
    return b"".join(b"%d: the Vltava " % number for number in range(size // 10))[:size]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 1000, 16_000, 65_536, 65_537, 3 * QUICK_BYTES_MAX])
def test_what_was_packed_comes_out_one_after_the_other(codec: Codec, size: int, way: str) -> None:
    unfolded = Unfolded()
    unfolded.put(codec, memoryview(compress(codec, texts(size), None)))
    unfolded.put(codec, memoryview(compress(codec, b"behind it", None)))
    assert bytes(unfolded.data) == texts(size) + b"behind it"


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused(codec: Codec, way: str) -> None:
    packed = bytearray(compress(codec, texts(5000), None))
    for damaged in (packed[:-5], packed[:3], b"\0" * 50, packed[:20] + b"\xff" * 40 + packed[60:]):
        with pytest.raises(DecompressionRefused):
            Unfolded().put(codec, memoryview(bytes(damaged)))


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


@pytest.mark.parametrize("codec", QUICK)
def test_two_frames_in_one_batch_are_the_same_by_both_ways(codec: Codec) -> None:
    packed = memoryview(compress(codec, b"one", None) + compress(codec, b"two", None))
    outcomes = []
    for ways in (unfolding._QUICK, {}):
        unfolded = Unfolded()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unfolding, "_QUICK", ways)
            unfolded.put(codec, packed)
        outcomes.append(bytes(unfolded.data))
    assert outcomes[0] == outcomes[1]


def test_the_quick_way_is_there_where_its_packages_are() -> None:
    pytest.importorskip("zstandard")
    pytest.importorskip("lz4")
    for codec in QUICK:
        quick = unfolding._QUICK[codec]
        assert quick is not None
        assert quick(memoryview(compress(codec, b"value", None)), 100) == b"value"
        assert quick(memoryview(compress(codec, bytes(1000), None)), 100) is None, (
            "more than there is room for"
        )
