"""Codecs: framings that Kafka's clients read, and bombs that are refused before they take memory."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.compression import Codec, DecompressionRefused, compress, decompress

PACKED = [codec for codec in Codec if codec is not Codec.NONE]


@given(st.binary(max_size=200_000), st.sampled_from(Codec))
def test_what_is_compressed_comes_back(data: bytes, codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, data), max(1, len(data)))) == data


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_without_its_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    assert len(bomb) < 3_000_000
    tracemalloc.start()
    with pytest.raises(DecompressionRefused):
        decompress(codec, bomb, 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.parametrize("codec", PACKED)
def test_data_that_is_cut_off_is_refused(codec: Codec) -> None:
    packed = compress(codec, b"some data " * 1000)
    for length in (0, 1, 9, len(packed) // 2, len(packed) - 1):
        with pytest.raises(DecompressionRefused):
            decompress(codec, packed[:length])


def test_snappy_is_read_as_a_java_stream_and_as_a_raw_block() -> None:
    data = b"abc" * 30_000
    stream = compress(Codec.SNAPPY, data)
    assert stream[:16] == b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
    assert bytes(decompress(Codec.SNAPPY, stream)) == data
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data


def test_a_snappy_block_that_claims_gigabytes_is_refused() -> None:
    with pytest.raises(DecompressionRefused):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 10)


def test_lz4_frames_have_independent_blocks_as_javas_reader_demands() -> None:
    frame = compress(Codec.LZ4, b"abc" * 100_000)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20
    assert bytes(cramjam.lz4.decompress(frame)) == b"abc" * 100_000


def test_lz4_stores_what_does_not_shrink() -> None:
    noise = gzip.compress(b"".join(bytes([i * i % 251]) for i in range(9000)))
    assert len(compress(Codec.LZ4, noise)) <= len(noise) + 20


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 12, 17)), (Codec.ZSTD, (-5, 3, 19))]
)
def test_every_level_of_kafka_is_taken(codec: Codec, levels: tuple[int, ...]) -> None:
    data = b"level " * 10_000
    for level in levels:
        assert bytes(decompress(codec, compress(codec, data, level))) == data


def test_streams_of_several_members_are_read_to_their_end() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"a") + gzip.compress(b"b"))) == b"ab"
    assert bytes(decompress(Codec.ZSTD, compress(Codec.ZSTD, b"a") + compress(Codec.ZSTD, b"b"))) == b"ab"
