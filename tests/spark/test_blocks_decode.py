"""Records to Arrow columns, by the compiled decoder and the plain one: as `moldau.records` reads them, or an error."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.records.batch import BatchHeader, read_header
from moldau.records.compression import Codec, compress
from moldau.records.record import (
    BadRecord,
    Record,
    assemble,
    build_batch,
    encode_records,
    read_records,
    records_of,
)
from moldau.spark.blocks import decode_fast, decode_plain
from moldau.spark.blocks.batches import Blocks, scan
from moldau.spark.blocks.decode import Decoder, Usual, decoder, own_folder, unfolder_for
from moldau.spark.blocks.errors import CorruptData, UnsupportedFormat

DECODERS = {"fast": decode_fast.decode, "plain": decode_plain.decode}
COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
BEYOND = 2**62

texts = st.one_of(st.none(), st.binary(max_size=5), st.binary(min_size=60, max_size=300))
headers = st.lists(st.tuples(st.text(max_size=6), texts), max_size=3).map(tuple)
timestamps = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-1, 2**62))


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> bytes:
    """One batch; offsets may have gaps, as compaction leaves them."""
    offset, records = base_offset, []
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.sampled_from((1, 1, 1, 2, 300)))
        records.append(Record(offset, draw(timestamps), draw(texts), draw(texts), draw(headers)))
    return build_batch(
        records,
        codec=draw(st.sampled_from(list(Codec))),
        log_append_time=draw(st.one_of(st.none(), st.integers(0, 2**50))),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        base = read_header(found[-1]).next_offset + draw(st.integers(0, 3)) if found else 0
        found.append(draw(batches(base)))
    return found


def rows_by(
    decode: Decoder,
    answer: bytes,
    first_offset: int = 0,
    next_offset: int = BEYOND,
    aborted: Sequence[tuple[int, int]] = (),
    columns: Sequence[str] = COLUMNS,
) -> list[dict[str, Any]]:
    records = memoryview(bytearray(answer))
    found = scan(records, first_offset, next_offset).found
    rows: list[dict[str, Any]] = []
    for block in Blocks().of(records, found, aborted, unfolder_for(decode)):
        decoded = decode(block, columns, first_offset, next_offset)
        for column in decoded.values():
            column.validate(full=True)
        arrays = {
            name: column.cast("int64").to_pylist() if name == "timestamp" else column.to_pylist()
            for name, column in decoded.items()
        }
        rows += [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]
    return rows


def expected_rows(batch: bytes) -> list[dict[str, Any]]:
    kind = 1 if read_header(batch).attributes & 8 else 0
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "timestamp": min(record.timestamp * 1000, 2**63 - 1),
            "timestampType": kind,
            "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
        }
        for record in read_records(batch)
    ]


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=logs(), data=st.data())
def test_columns_are_what_the_records_are(decode: Decoder, log: list[bytes], data: st.DataObject) -> None:
    expected = [row for batch in log for row in expected_rows(batch)]
    assert rows_by(decode, b"".join(log)) == expected
    first = data.draw(st.integers(0, expected[-1]["offset"]))
    after = data.draw(st.integers(first, expected[-1]["offset"] + 2))
    cut = [row for row in expected if first <= row["offset"] < after]
    assert rows_by(decode, b"".join(log), first, after) == cut
    columns = data.draw(st.lists(st.sampled_from(COLUMNS), unique=True))
    pruned = [{name: row[name] for name in (*columns, "offset")} for row in expected]
    assert rows_by(decode, b"".join(log), columns=columns) == pruned


def outcome(decode: Decoder, batch: bytes) -> object:
    try:
        return rows_by(decode, batch)
    except CorruptData as reason:
        return str(reason)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=batches(), data=st.data())
def test_records_that_lie_are_errors_and_never_more(batch: bytes, data: st.DataObject) -> None:
    """Damage under a right checksum: both decoders say the same, and what they take for records are records."""
    header = read_header(batch)._replace(attributes=0)
    body = bytearray(records_of(batch, read_header(batch)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from((0, 1, 127, 128, 255))))
    body = body[: data.draw(st.sampled_from((len(body), len(body), len(body) - 1, len(body) // 2)))]
    header = header._replace(
        count=data.draw(st.sampled_from((header.count, header.count, 0, 1, 2**31 - 1, -1)))
    )
    lie = assemble(header, bytes(body))
    assert outcome(decode_fast.decode, lie) == outcome(decode_plain.decode, lie)
    try:
        known = {record.offset: record.value for record in read_records(lie)}
    except BadRecord:
        return
    rows = outcome(decode_fast.decode, lie)
    if not isinstance(rows, str):
        assert {row["offset"]: row["value"] for row in rows} == {  # type: ignore[attr-defined]
            offset: value for offset, value in known.items() if 0 <= offset < BEYOND
        }


def lying(body: bytes, count: int = 1, last_delta: int = 0) -> bytes:
    header = read_header(build_batch([Record(0, 0, None, None)]))
    return assemble(header._replace(count=count, last_offset_delta=last_delta), body)


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0e" + b"\x00\x00\x00\x01\x01\x00", id="longer than the batch"),
        pytest.param(b"\xff\xff\xff\xff\x0f" + b"\x00" * 10, id="a length of four gigabytes"),
        pytest.param(b"\xff" * 12, id="a varint without an end"),
        pytest.param(b"\x01" + b"\x00" * 8, id="a negative length"),
        pytest.param(b"\x0c\x00\x00\x00\x10\x01\x00", id="a key that reaches beyond its record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\xfe\x00", id="a value that reaches beyond its record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x20", id="more headers than bytes"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", id="fewer headers than none"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", id="a header without a name"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x00\x00", id="bytes after the last record"),
        pytest.param(b"\x0c\x00\x00\x02\x01\x01\x00", id="an offset beyond the batch's last"),
        pytest.param(b"\x0c\x00\x00\x01\x01\x01\x00", id="an offset before the batch's first"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", id="bytes within a record that mean nothing"),
    ],
)
def test_no_length_is_trusted(decode: Decoder, body: bytes) -> None:
    with pytest.raises(CorruptData, match="batch at offset 0"):
        rows_by(decode, lying(body))


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
def test_offsets_within_a_batch_ascend(decode: Decoder) -> None:
    one = b"\x0c\x00\x00\x02\x01\x01\x00"
    with pytest.raises(CorruptData):
        rows_by(decode, lying(one + one, count=2, last_delta=5))


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
def test_header_names_that_are_no_text_are_mended_as_java_mends_them(decode: Decoder) -> None:
    batch = build_batch([Record(0, 0, None, None, (("a\udcff", b"1"), ("b", None)))])
    assert rows_by(decode, batch)[0]["headers"] == [
        {"key": "a\ufffd", "value": b"1"},
        {"key": "b", "value": None},
    ]


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
def test_moments_that_spark_cannot_hold_are_the_last_that_it_can(decode: Decoder) -> None:
    for millis, micros in [(2**62, 2**63 - 1), (-1, -1000), (-(2**62), -(2**63 - 1))]:
        assert rows_by(decode, build_batch([Record(0, millis, None, None)]))[0]["timestamp"] == micros


def test_damage_is_seen_by_the_checksum() -> None:
    batch = bytearray(build_batch([Record(0, 0, b"key", b"value")]))
    batch[-3] ^= 1
    with pytest.raises(CorruptData, match="checksum of the batch at offset 0"):
        rows_by(decode_plain.decode, bytes(batch))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_damaged_compression_is_an_error(codec: Codec) -> None:
    whole = build_batch([Record(n, 0, b"key", b"value" * 50) for n in range(9)], codec=codec)
    header = read_header(whole)
    for packed in (whole[61:-9], b"", b"\x00" * 40, b"\xff" * 70):
        with pytest.raises(CorruptData, match="batch at offset 0"):
            rows_by(decode_plain.decode, assemble(header, packed))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_may_not_unfold_without_end(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.spark.blocks.unfolding.DECOMPRESSED_BYTES_MAX", 300_000)
    records = encode_records([Record(0, 0, None, b"\x00" * 3_000_000)], 0, 0)
    bomb = assemble(
        read_header(build_batch([Record(0, 0, None, None)]))._replace(attributes=codec),
        compress(codec, records),
    )
    with pytest.raises(CorruptData, match="more than"):
        rows_by(decode_plain.decode, bomb)


def test_what_unfolds_to_much_comes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.spark.blocks.batches.BLOCK_BYTES_MAX", 100_000)
    log = [
        build_batch([Record(n, 0, None, b"%d" % n * 30_000)], codec=codec)
        for n, codec in enumerate([Codec.ZSTD] * 5 + [Codec.NONE] * 2 + [Codec.LZ4, Codec.SNAPPY, Codec.GZIP])
    ]
    records = memoryview(bytearray(b"".join(log)))
    sizes = [
        sum(body.stop - body.start for body in block.bodies)
        for block in Blocks().of(records, scan(records, 0, BEYOND).found, ())
    ]
    assert len(sizes) > 5 and max(sizes) < 160_000
    for decode in DECODERS.values():
        assert [row["value"][:1] for row in rows_by(decode, b"".join(log))] == [b"%d" % n for n in range(10)]


def test_an_unknown_codec_is_named() -> None:
    batch = build_batch([Record(0, 0, None, None)])
    with pytest.raises(UnsupportedFormat, match="unknown codec 7"):
        rows_by(decode_plain.decode, assemble(read_header(batch)._replace(attributes=7), batch[61:]))


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_named(magic: int) -> None:
    message = struct.pack(">qiIbb", 5, 14 + 8 * magic, 0, magic, 0) + bytes(16)
    with pytest.raises(UnsupportedFormat, match=f"records at offset 5 are in format v{magic}"):
        rows_by(decode_plain.decode, message)


def test_a_batch_that_was_cut_off_is_left_for_the_next_answer() -> None:
    log = [build_batch([Record(n, 0, None, b"%d" % n)]) for n in range(3)]
    for cut in range(1, len(log[2])):
        scanned = scan(memoryview(b"".join(log)[:-cut]), 0, BEYOND)
        assert (len(scanned.found), scanned.next_offset, scanned.missing_bytes) == (2, 2, 0)
    assert scan(memoryview(log[0][:-4]), 0, BEYOND).missing_bytes == 4


def test_headers_that_lie_are_errors() -> None:
    header = read_header(build_batch([Record(3, 0, None, None)]))
    lies: list[tuple[BatchHeader, str]] = [
        (header._replace(last_offset_delta=-1), "claims to end at 2"),
        (header._replace(base_offset=2**63 - 1), "claims"),
        (header._replace(count=-1), "claims -1 records"),
        (header._replace(count=2), "claims 2 records in 7 bytes"),
    ]
    for lie, says in lies:
        with pytest.raises(CorruptData, match=says):
            rows_by(decode_plain.decode, assemble(lie, b"\x0c\x00\x00\x00\x01\x01\x00"))
    short = bytearray(build_batch([Record(3, 0, None, None)]))
    struct.pack_into(">i", short, 8, 20)
    with pytest.raises(CorruptData, match="claims 20 bytes"):
        rows_by(decode_plain.decode, bytes(short))


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    record = Record(offset, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


def by(producer_id: int, offset: int, transactional: bool = True) -> bytes:
    record = Record(offset, 0, None, b"%d@%d" % (producer_id, offset))
    return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=transactional)


def test_what_an_abort_took_back_is_not_seen() -> None:
    """Producer 1 aborts, commits, aborts; producer 2 commits; what is outside of transactions is seen."""
    log = [
        *(by(1, 0), by(2, 1), marker(2, 1, 0), by(1, 3), marker(4, 2, 1), marker(5, 1, 1)),
        *(by(1, 6), by(2, 7, transactional=False), by(1, 8), marker(9, 1, 0), by(1, 10)),
    ]
    aborted = [(1, 6), (1, 0)]
    for decode in DECODERS.values():
        seen = [row["value"] for row in rows_by(decode, b"".join(log), aborted=aborted)]
        assert seen == [b"2@1", b"1@3", b"2@7", b"1@10"]
        all_of_it = [row["value"] for row in rows_by(decode, b"".join(log))]
        assert len(all_of_it) == 7


def test_a_control_batch_that_cannot_be_read_is_an_error() -> None:
    whole = marker(0, 1, 0)
    for body in (b"\x0c\x00\x00\x00\x01\x01\x00", b"\x0e\x00\x00\x00\x02\x00\x01\x00", b"\x00" * 9):
        with pytest.raises(CorruptData, match="control batch"):
            rows_by(decode_plain.decode, assemble(read_header(whole), body))


def test_the_fallback_is_chosen_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder.cache_clear()
    assert decoder() is decode_fast.decode
    monkeypatch.setenv("MOLDAU_FALLBACKS", "1")
    decoder.cache_clear()
    assert decoder() is decode_plain.decode
    monkeypatch.undo()
    decoder.cache_clear()


def test_few_records_never_wait_for_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(name: str, decode: Decoder) -> Decoder:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            return decode(*arguments)

        return call

    monkeypatch.setattr("moldau.spark.blocks.decode.PLAIN_RECORDS", 2)
    monkeypatch.setattr(decode_plain, "decode", noted("plain", decode_plain.decode))
    monkeypatch.setattr("moldau.spark.blocks.decode.decoder", lambda: noted("fast", decode_fast.decode))
    usual = Usual()
    log = build_batch([Record(0, 1, None, b"one")])
    assert [rows_by(usual, log)[0]["value"] for _ in range(4)] == [b"one"] * 4
    assert calls == ["plain", "plain", "fast", "fast"]


def test_a_worker_reads_and_decodes_without_pandas() -> None:
    """To import it takes as long as all the rest of a worker's start; some of pyarrow's functions do that unasked."""
    script = """
import sys
from moldau.spark.source import readers, values
from moldau.spark.blocks.columns import TYPES, bytes_scalar
from moldau.spark.blocks.decode import SAMPLE, usual
from moldau.spark.blocks.read import Rows
from moldau.spark.blocks.settings import Split
import pyarrow as pa
columns = usual(*SAMPLE)
rows = Rows(pa.schema([(name, TYPES[name]) for name in ("topic", "partition", "value")]), Split("t", 3, 0, 1))
(batch,) = rows.batches(columns)
assert batch.to_pylist() == [{"topic": "t", "partition": 3, "value": None}], batch.to_pylist()
text = pa.repeat(bytes_scalar(pa.binary(), b'{"a":1}'), 1)
assert values.parse_json(text, pa.struct([("a", pa.int64())])).to_pylist() == [{"a": 1}]
print("pandas" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "False\n", done.stderr


def test_what_others_made_is_not_executed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = own_folder()
    assert own_folder() == mine
    (tmp_path / mine).chmod(0o777)
    other = own_folder()
    assert other != mine and other.startswith(str(tmp_path))
