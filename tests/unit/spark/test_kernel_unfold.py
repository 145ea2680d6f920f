"""All batches of an answer by compiled code: the same blocks and the same errors as batch by batch."""

from __future__ import annotations

import logging
import random
import struct

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numba")

from moldau.records.batch import HEADER_BYTES
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, build_batch
from moldau.spark.blocks import batches, decode, decode_plain
from moldau.spark.blocks.batches import Blocks, Body, scan
from moldau.spark.blocks.errors import CorruptData, UnsupportedFormat
from moldau.spark.blocks.unfolding import DIRECT_BYTES_MAX, UnfoldBatches

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
LENGTH_AT, COUNT_AT = 8, 57


@pytest.fixture(scope="module")
def compiled() -> UnfoldBatches:
    from moldau.spark.blocks import decode_fast

    found = decode.unfolder_for(decode_fast.decode)
    assert found is not None
    return found


def batch(codec: Codec, offset: int, size: int = 1000, count: int = 10, **settings: int) -> bytes:
    records = [
        Record(offset + number, 5000 - 400 * number, b"key", b"%d: the Vltava " % number * (size // 15))
        for number in range(count)
    ]
    return build_batch(records, codec=codec, **settings)  # type: ignore[arg-type]


def with_body(made: bytes, packed: bytes) -> bytes:
    """The same header before other data."""
    changed = bytearray(made[:HEADER_BYTES] + packed)
    struct.pack_into(">i", changed, LENGTH_AT, len(changed) - 12)
    return bytes(changed)


def answer(*made: bytes) -> memoryview:
    return memoryview(bytearray(b"".join(made)))


Seen = list[tuple[bytes, list[tuple[int, ...]]]]


def seen(
    records: memoryview, unfold_batches: UnfoldBatches | None, blocks: Blocks | None = None
) -> Seen | str:
    """Of every block its content, and its table with the places counted from its start; or what was raised."""
    found = scan(records, 0, 1 << 40).found
    outcome = []
    try:
        for data, bodies in (blocks or Blocks(check_crc=False)).of(records, found, (), unfold_batches):
            rows = [Body(*map(int, row)) for row in bodies]
            content = b"".join(bytes(data[row.start : row.stop]) for row in rows)
            outcome.append((content, [tuple(row) for row in rows]))
    except (CorruptData, UnsupportedFormat) as reason:
        return f"{type(reason)}: {reason}"
    return outcome


def assert_same(records: memoryview, compiled: UnfoldBatches) -> Seen | str:
    expected = seen(records, None)
    assert seen(records, compiled) == expected
    return expected


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_a_codec(codec: Codec, compiled: UnfoldBatches) -> None:
    made = [batch(codec, 10 * number) for number in range(50)]
    ((_, rows),) = assert_same(answer(*made), compiled)
    assert len(rows) == 50


def test_batches_of_all_codecs_with_all_kinds_of_headers(compiled: UnfoldBatches) -> None:
    draw = random.Random(1)
    for _ in range(50):
        made, offset = [], draw.choice((0, 1 << 39))
        for _ in range(draw.randrange(1, 12)):
            count = draw.randrange(1, 20)
            settings = draw.choice(({}, {"log_append_time": draw.choice((-1, 0, 1 << 60))}))
            made.append(batch(draw.choice(CODECS), offset, draw.randrange(3000), count, **settings))
            offset += count + draw.randrange(3)
        assert_same(answer(*made), compiled)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_blocks_end_where_they_are_full(
    codec: Codec, compiled: UnfoldBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BLOCK_BYTES_MAX", 35_000)
    made = [batch(codec, 10 * number) for number in range(12)]
    assert len(assert_same(answer(*made), compiled)) == 3
    assert len(assert_same(answer(*made[:4]), compiled)) == 1
    assert len(assert_same(answer(*made[:5]), compiled)) == 2


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_the_buffer_grows_on_the_way(codec: Codec, compiled: UnfoldBatches) -> None:
    made = answer(*[batch(codec, 10 * number, 60_000) for number in range(20)])
    blocks = Blocks()
    for _ in range(2):
        assert seen(made, compiled, blocks) == seen(made, None)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_what_it_does_not_take_goes_the_other_way(codec: Codec, compiled: UnfoldBatches) -> None:
    """Batches that are large, and several frames in one: between others, at the start and at the end."""
    usual = batch(codec, 10)
    large = batch(codec, 20, DIRECT_BYTES_MAX // 9)
    body = batch(Codec.NONE, 30)[HEADER_BYTES:]
    frames = with_body(
        batch(codec, 30), compress(codec, body[:500], None) + compress(codec, body[500:], None)
    )
    last = batch(codec, 40)
    for made in (
        [usual, large, frames, last],
        [large],
        [frames],
        [large, last],
        [usual, large],
        [frames, last],
    ):
        outcome = assert_same(answer(*made), compiled)
        if codec is Codec.ZSTD or frames not in made:
            assert isinstance(outcome, list) and len(outcome[0][1]) == len(made)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [-1, 1 << 30])
def test_a_number_of_records_that_cannot_be(codec: Codec, claimed: int, compiled: UnfoldBatches) -> None:
    bad = bytearray(batch(codec, 10))
    struct.pack_into(">i", bad, COUNT_AT, claimed)
    outcome = assert_same(answer(batch(codec, 0), bytes(bad), batch(codec, 20)), compiled)
    assert "the batch at offset 10 claims" in outcome


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("length", range(8))
def test_a_body_that_is_too_short(codec: Codec, length: int, compiled: UnfoldBatches) -> None:
    made = batch(codec, 0)
    bad = with_body(made, made[HEADER_BYTES:][:length])
    assert "cannot be unfolded" in assert_same(answer(bad), compiled)


def test_an_unknown_codec(compiled: UnfoldBatches) -> None:
    bad = bytearray(batch(Codec.ZSTD, 10))
    bad[22] |= 7
    assert "unknown codec" in assert_same(answer(batch(Codec.LZ4, 0), bytes(bad)), compiled)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("seed", range(3))
def test_damage_has_the_same_outcome(codec: Codec, seed: int, compiled: UnfoldBatches) -> None:
    draw = random.Random(seed)
    blocks = Blocks(check_crc=False)
    for _ in range(400):
        made = [bytearray(batch(codec, 10 * number, draw.randrange(800))) for number in range(3)]
        bad = draw.choice(made)
        for _ in range(draw.choice((1, 1, 3))):
            reach = draw.choice((HEADER_BYTES + 12, len(bad)))
            bad[draw.randrange(HEADER_BYTES, min(reach, len(bad)))] = draw.randrange(256)
        records = answer(*made)
        assert seen(records, compiled, blocks) == seen(records, None), records.hex()


def test_it_goes_with_the_compiled_decoder_only(compiled: UnfoldBatches) -> None:
    from moldau.spark.blocks import decode_fast

    usual = decode.Usual()
    assert decode.unfolder_for(usual) is None
    assert decode.unfolder_for(decode_plain.decode) is None
    usual.chosen = decode_fast.decode
    assert decode.unfolder_for(usual) is compiled


def test_where_it_cannot_be_compiled_batches_are_unfolded_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(decode, "tabulate", fail)
    with caplog.at_level(logging.WARNING, "moldau.spark"):
        assert decode._unfold_batches.__wrapped__() is None
    assert "no compiler" in caplog.text
