"""What Kafka's leader checks before it appends a client's batch, with the error code that it answers.

Order and codes were compared with Apache Kafka 4.3.1 by sending it hand-made batches. Two answers differ on
purpose: an unknown codec and a compressed payload that cannot be unfolded get UNSUPPORTED_COMPRESSION_TYPE
and INVALID_RECORD, where Kafka answers UNKNOWN_SERVER_ERROR.

How deep. Kafka walks every record of every batch, and unfolds each compressed one. In Python a record costs
0.2 us (its length alone) to 0.9 us, so 1 MB of 100-byte records would cost 1.6 to 9 ms, more than all else
together. So:
- The header is checked in full, always: lengths, checksum, counts, codec, control bit, producer fields.
- All records are walked when the answer depends on them: a compacted topic (null keys), a batch to be
  recompressed, header timestamps that are out of range or contradict each other.
- All records are walked when there are few of them (`WALKED_RECORDS_MAX`; compressed ones up to
  `UNFOLDED_BYTES_MAX`, and to what may be unfolded on the loop): a client that frames records wrongly is found at its
  first message.
- Otherwise the first record of an uncompressed batch is walked. The count must fit into what a batch holds, or could
  unfold to.

Where. Nothing here holds the loop, whatever a client sends: a batch that has to be walked and is not small (`bounds`)
is `TooMuch` for `check_batch`, and goes through `look_at` in a thread first; what that found out is handed to
`check_batch`, which then believes it.
What is given up: a client that sends a right checksum, right header and right first record over damaged
further ones is not caught here. Consumers will find the damage, and so will a look-up by time that comes to
that batch (CORRUPT_MESSAGE). Nor is a max timestamp put right that lies between the base and what the topic
allows: look-ups by time believe it. Offsets, sequences, recovery and fetches rely on headers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from crc32c import crc32c

from moldau.base.errors import ErrorCode
from moldau.base.limits import PACKED_INLINE_BYTES_MAX, RECORD_HEADERS_INLINE_MAX
from moldau.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_AND_BEFORE_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    set_timestamps,
)
from moldau.records.bounds import INLINE, Bounds, TooMuch, is_inline, without_traces
from moldau.records.compression import CODEC_BY_NAME, Codec, compress, unfolded_bytes_max
from moldau.records.record import RECORD_BYTES_MIN, BadRecord, assemble, records_of
from moldau.records.refusals import RecordError as RecordError
from moldau.records.refusals import RecordErrors
from moldau.records.refusals import Refused as Refused
from moldau.records.walk import ManyHeaders, Walked, fields, plain_record_end, walk
from moldau.runtime.ports import Buffer

WALKED_RECORDS_MAX = 4
UNFOLDED_BYTES_MAX = 4096
LENGTH_MIN_OF_ANY_MAGIC = 14
_ZSTD = int(Codec.ZSTD)
_CODEC_OR_LOG_APPEND_TIME = CODEC_MASK | LOG_APPEND_TIME
_ATTRIBUTES_AND_TIMES = Struct(">h4xqq")
_LZ4_INDEPENDENT_BLOCKS = 0x20
_LZ4_FLAGS_POSITION = HEADER_BYTES + 4

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


class TopicSettings(Protocol):
    """The part of a topic's configuration that appends depend on."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def cleanup_policy(self) -> tuple[str, ...]: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class AppendRules:
    """A topic's settings, worked out once for the checks of every batch."""

    partition: str
    max_message_bytes: int
    compacted: bool
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    codec: Codec | None
    """The codec of the topic; None where the producer's is kept."""
    level: int | None
    walk_all: bool
    """Every batch is walked: its keys matter, or it will be compressed."""

    @classmethod
    def of(cls, partition: str, topic: TopicSettings) -> AppendRules:
        codec = CODEC_BY_NAME.get(topic.compression_type)
        levels = {
            Codec.GZIP: topic.compression_gzip_level,
            Codec.LZ4: topic.compression_lz4_level,
            Codec.ZSTD: topic.compression_zstd_level,
        }
        compacted = "compact" in topic.cleanup_policy
        return cls(
            partition=partition,
            max_message_bytes=topic.max_message_bytes,
            compacted=compacted,
            log_append_time=topic.message_timestamp_type == "LogAppendTime",
            timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
            timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
            codec=codec,
            level=None if codec is None else levels.get(codec),
            walk_all=compacted or codec not in (None, Codec.NONE),
        )


@dataclass(frozen=True, slots=True)
class Looked:
    """What `look_at` has found out about a batch."""

    rules: AppendRules
    """Of the topic, then: with others it has to be looked at again."""
    newest: int
    """Its true max timestamp."""
    refusal: Refused | None = None
    recompressed: bytearray | None = None
    """The batch with the topic's codec, where it came with another."""

    def checked(self) -> int:
        if self.refusal is not None:
            raise self.refusal
        return self.newest


def wants_looking_at(buffer: memoryview, start: int, stop: int, rules: AppendRules, now_ms: int) -> bool:
    """Whether `check_batch` will find a batch to be `TooMuch`, or it should not be recompressed on the loop."""
    if stop - start < HEADER_BYTES:
        return False
    attributes, base_timestamp, max_timestamp = _ATTRIBUTES_AND_TIMES.unpack_from(buffer, start + 21)
    if (
        rules.codec is None
        and not rules.compacted
        and not attributes & LOG_APPEND_TIME
        and NO_TIMESTAMP <= base_timestamp <= max_timestamp
        and max_timestamp - now_ms <= rules.timestamp_after_max_ms
        and now_ms - base_timestamp <= rules.timestamp_before_max_ms
    ):
        return False  # nearly always, and found out without reading all of the header
    header = read_header(buffer, start)
    if header.magic != MAGIC or header.size > stop - start or not _must_walk(header, rules, now_ms):
        return False
    if rules.codec not in (None, header.codec_id) and header.size > PACKED_INLINE_BYTES_MAX:
        return True
    return not is_inline(buffer[start:stop], header)


def look_at(
    batch: Buffer, rules: AppendRules, now_ms: int, zstd_allowed: bool, bounds: Bounds
) -> Looked | TooMuch:
    """Look at a batch as `check_batch` does, and recompress it where the topic asks for it; in a thread, and there
    mostly inside calls that let the loop go on. `TooMuch` is returned, not raised: it is no failure.
    """
    own = memoryview(bytearray(batch))
    newest = NO_TIMESTAMP
    try:
        header = BatchHeader._make(check_batch(own, 0, len(own), rules, now_ms, zstd_allowed, bounds=bounds))
        newest = header.max_timestamp
        if rules.codec in (None, header.codec_id):
            return Looked(rules, newest)
        own = own[: header.size]
        return Looked(rules, newest, recompressed=bytearray(recompress(own, rules)))
    except Refused as refusal:
        return Looked(rules, newest, without_traces(refusal))
    except TooMuch as much:
        return without_traces(much)


def check_batch(
    buffer: memoryview,
    start: int,
    stop: int,
    rules: AppendRules,
    now_ms: int,
    zstd_allowed: bool,
    looked: Looked | None = None,
    bounds: Bounds = INLINE,
) -> HeaderFields:
    """Check the one batch in buffer[start:stop] as a leader does, and make its timestamps the topic's, in place.

    Returns the header's fields as they are afterwards, in the order of `BatchHeader`'s; raises `Refused`, and
    `TooMuch` where the batch has to be looked at aside first.
    """
    if stop - start < HEADER_BYTES:
        refuse_framing(buffer, start, stop)
    header: HeaderFields = HEADER.unpack_from(buffer, start)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        _,
        base_sequence,
        count,
    ) = header
    size = length + LENGTH_AND_BEFORE_BYTES
    if magic != MAGIC or start + size != stop:
        stop = refuse_framing(buffer, start, stop)
    codec = attributes & CODEC_MASK
    if not zstd_allowed and codec == _ZSTD:
        _refuse_zstd()
    if base_offset != 0:
        raise Refused(ErrorCode.invalid_record, f"base offset is {base_offset}, not 0")
    if size > rules.max_message_bytes:
        _refuse_size(size, rules.max_message_bytes)
    if crc32c(buffer[start + CRC_START : stop]) != crc:
        raise Refused(ErrorCode.corrupt_message, "checksum does not match", before_append=True)
    if (
        count <= 0
        or count != last_offset_delta + 1
        or attributes & CONTROL
        or (producer_id >= 0 and base_sequence < 0)
    ):
        _refuse_header(BatchHeader._make(header))
    if (
        attributes & _CODEC_OR_LOG_APPEND_TIME
        or rules.walk_all
        or max_timestamp < base_timestamp
        or base_timestamp < NO_TIMESTAMP
        or max_timestamp - now_ms > rules.timestamp_after_max_ms
        or now_ms - base_timestamp > rules.timestamp_before_max_ms
    ):
        newest = _check_records(buffer, start, stop, BatchHeader._make(header), rules, now_ms, looked, bounds)
    elif count == 1 and plain_record_end(buffer, start + HEADER_BYTES, stop) == stop:
        newest = base_timestamp
    else:
        newest = _check_plain_records(buffer, start, stop, header, rules, now_ms)
    if newest == max_timestamp and not rules.log_append_time and not attributes & LOG_APPEND_TIME:
        return header
    return _stamped(buffer, start, stop, attributes, now_ms if rules.log_append_time else newest, rules)


def _stamped(
    buffer: memoryview, start: int, stop: int, attributes: int, max_timestamp: int, rules: AppendRules
) -> HeaderFields:
    """The header, with timestamps that are the topic's."""
    kept = attributes & ~LOG_APPEND_TIME
    set_timestamps(
        buffer, start, stop, kept | LOG_APPEND_TIME if rules.log_append_time else kept, max_timestamp
    )
    stamped: HeaderFields = HEADER.unpack_from(buffer, start)
    return stamped


def _is_suspicious(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    """Whether the header's timestamps contradict each other, or some record's is out of the topic's range."""
    base_timestamp, max_timestamp = header.base_timestamp, header.max_timestamp
    return (
        max_timestamp < base_timestamp
        or base_timestamp < NO_TIMESTAMP
        or (
            not rules.log_append_time
            and (
                max_timestamp - now_ms > rules.timestamp_after_max_ms
                or now_ms - base_timestamp > rules.timestamp_before_max_ms
            )
        )
    )


def _refuse_zstd() -> None:
    raise Refused(
        ErrorCode.unsupported_compression_type, "zstd needs Produce version 7 or newer", before_append=True
    )


def _refuse_size(size: int, limit: int) -> None:
    raise Refused(
        ErrorCode.message_too_large,
        f"batch of {size} bytes exceeds max.message.bytes of {limit}",
        before_append=True,
    )


def _check_plain_records(
    buffer: memoryview, start: int, stop: int, header: HeaderFields, rules: AppendRules, now_ms: int
) -> int:
    """The usual case: an uncompressed batch of which nothing is suspicious. Returns its max timestamp."""
    _, _, _, _, _, _, _, base_timestamp, max_timestamp, _, _, _, count = header
    records = start + HEADER_BYTES
    try:
        if count > WALKED_RECORDS_MAX:
            if count * RECORD_BYTES_MIN > stop - records:
                raise BadRecord(f"{count} records cannot fit into {stop - start} bytes")
            if not plain_record_end(buffer, records, stop):
                walk(buffer, records, stop, 1, headers_max=RECORD_HEADERS_INLINE_MAX)
            return max_timestamp
        walked = walk(buffer, records, stop, count, headers_max=RECORD_HEADERS_INLINE_MAX)
        end, _, max_delta, _, _ = walked
        if end != stop:
            raise BadRecord(f"{stop - end} bytes are left after the last record")
    except BadRecord as bad:
        raise Refused(ErrorCode.invalid_record, str(bad)) from None
    except ManyHeaders:  # not walked, like any other large batch
        return max_timestamp
    if base_timestamp + max_delta == max_timestamp:
        return max_timestamp
    return _judge(buffer[start:stop], HEADER_BYTES, BatchHeader._make(header), rules, now_ms, walked)


def refuse_framing(buffer: memoryview, start: int, stop: int) -> int:
    """Say what is wrong with the bytes as a series of batches; return the end of the first batch where
    nothing is.

    Like Kafka: a cut-off batch at the end is dropped without a word, a complete second one is refused.
    """
    end = _next_batch_end(buffer, start, stop)
    if end is None:
        raise Refused(ErrorCode.invalid_record, "there is no complete batch", before_append=True)
    if buffer[start + MAGIC_POSITION] != MAGIC:
        raise Refused(ErrorCode.invalid_record, "only batches of format v2 are taken", before_append=True)
    try:
        second = _next_batch_end(buffer, end, stop)
    except Refused as refusal:
        raise Refused(refusal.code, str(refusal), before_append=True) from None
    if second is not None:
        raise Refused(ErrorCode.invalid_record, "more than one batch for a partition", before_append=True)
    if end - start < HEADER_BYTES:
        raise Refused(ErrorCode.corrupt_message, "batch is smaller than its header", before_append=True)
    return end


def is_transactional(buffer: memoryview, start: int, stop: int) -> bool:
    """Whether the first batch belongs to a transaction; Refused where it is no batch of any format."""
    end = _next_batch_end(buffer, start, stop)
    return (
        end is not None
        and buffer[start + MAGIC_POSITION] == MAGIC
        and bool(buffer[start + ATTRIBUTES_POSITION] & TRANSACTIONAL)
    )


def is_transactional_batch(buffer: memoryview, start: int, stop: int) -> bool:
    """A quick look at where a batch has the mark; what is no batch is found out later."""
    return stop - start >= HEADER_BYTES and buffer[start + ATTRIBUTES_POSITION] & TRANSACTIONAL != 0


def transactional_batch(buffer: memoryview, start: int, stop: int) -> tuple[int, int, int] | None:
    """Producer id, epoch and first sequence of a batch that belongs to a transaction; None for any other."""
    if not is_transactional_batch(buffer, start, stop):
        return None
    header = read_header(buffer, start)
    if header.magic != MAGIC or header.producer_id < 0:
        return None
    return header.producer_id, header.producer_epoch, header.base_sequence


def _next_batch_end(buffer: memoryview, start: int, stop: int) -> int | None:
    if stop - start < LENGTH_AND_BEFORE_BYTES:
        return None
    length = int.from_bytes(buffer[start + 8 : start + 12], "big", signed=True)
    if length < LENGTH_MIN_OF_ANY_MAGIC:
        text = f"Record size {length} is less than the minimum record overhead ({LENGTH_MIN_OF_ANY_MAGIC})"
        raise Refused(ErrorCode.corrupt_message, text, message=text, before_append=True)
    if stop - start <= MAGIC_POSITION:
        return None
    magic = int.from_bytes(buffer[start + MAGIC_POSITION : start + MAGIC_POSITION + 1], "big", signed=True)
    if not 0 <= magic <= MAGIC:
        text = f"Invalid magic found in record: {magic}"
        raise Refused(ErrorCode.corrupt_message, text, message=text, before_append=True)
    end = start + length + LENGTH_AND_BEFORE_BYTES
    return end if end <= stop else None


def _refuse_header(header: BatchHeader) -> None:
    if header.last_offset_delta < 0:
        reason = f"invalid offset range: last offset delta is {header.last_offset_delta}"
    elif header.count <= 0:
        reason = f"invalid count of records: {header.count}"
    elif header.count != header.last_offset_delta + 1:
        reason = f"{header.count} records do not match the last offset delta {header.last_offset_delta}"
    elif header.is_control:
        reason = "clients may not write control records"
    else:
        reason = f"invalid sequence number {header.base_sequence} of producer {header.producer_id}"
    raise Refused(ErrorCode.invalid_record, reason)


def _check_records(
    buffer: memoryview,
    start: int,
    stop: int,
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
    looked: Looked | None,
    bounds: Bounds,
) -> int:
    """Walk the records where it is worth it (see the module's head); returns the batch's true max
    timestamp."""
    if looked is not None:
        return looked.checked()
    codec = header.codec_id
    if codec:
        _check_codec(buffer, start, stop, codec)
        if header.count * RECORD_BYTES_MIN > stop - start:
            _check_count(buffer[start + HEADER_BYTES : stop], header)
    if _must_walk(header, rules, now_ms):
        return _check_all(buffer[start:stop], header, rules, now_ms, bounds)
    if not codec:
        return _check_plain_records(buffer, start, stop, header, rules, now_ms)
    if header.count <= WALKED_RECORDS_MAX and header.size <= UNFOLDED_BYTES_MAX:
        try:
            return _check_all(buffer[start:stop], header, rules, now_ms, INLINE)
        except TooMuch:  # not walked, like any other large batch
            pass
    return header.max_timestamp


def _check_codec(buffer: memoryview, start: int, stop: int, codec: int) -> None:
    if codec > Codec.ZSTD:
        raise Refused(ErrorCode.unsupported_compression_type, f"unknown codec {codec}")
    if codec == Codec.LZ4 and (
        stop - start <= HEADER_BYTES + 7 or not buffer[start + _LZ4_FLAGS_POSITION] & _LZ4_INDEPENDENT_BLOCKS
    ):
        raise Refused(ErrorCode.invalid_record, "lz4 blocks that depend on each other cannot be read by all")


def _check_count(packed: memoryview, header: BatchHeader) -> None:
    """A batch cannot hold more records than it could unfold to. Kafka finds it out by walking them."""
    size_max = unfolded_bytes_max(Codec(header.codec_id), packed)
    if header.count * RECORD_BYTES_MIN > size_max:
        raise Refused(ErrorCode.invalid_record, f"{header.count} records cannot fit into {size_max} bytes")


def _must_walk(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    """Whether the answer depends on the records."""
    codec = header.attributes & CODEC_MASK
    return (
        rules.compacted
        or (rules.codec is not None and rules.codec != codec)
        or (header.attributes & LOG_APPEND_TIME != 0 and (rules.log_append_time or not codec))
        or _is_suspicious(header, rules, now_ms)
    )


def _check_all(
    batch: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int, bounds: Bounds
) -> int:
    """Walk all records, and judge by them. Returns the batch's true max timestamp."""
    try:
        body = bounds.records_of(batch, header)
        walked = walk(body, 0, len(body), header.count, is_dense=header.codec_id != Codec.NONE)
        end, _, _, _, _ = walked
        if end != len(body):
            raise BadRecord(f"{len(body) - end} bytes are left after the last record")
    except BadRecord as bad:
        raise Refused(ErrorCode.invalid_record, str(bad)) from None
    return _judge(body, 0, header, rules, now_ms, walked)


def _judge(
    body: Buffer, position: int, header: BatchHeader, rules: AppendRules, now_ms: int, walked: Walked
) -> int:
    """Refuse what the topic does not take, by all of its records. Returns the batch's true max timestamp."""
    _, min_delta, max_delta, keyless, _ = walked
    if header.attributes & LOG_APPEND_TIME:
        oldest = newest = header.max_timestamp
    else:
        oldest = header.base_timestamp + min_delta
        newest = header.base_timestamp + max_delta
    if rules.log_append_time:
        wrong_time = bool(header.attributes & LOG_APPEND_TIME)  # the broker's word, not the producer's
    else:
        wrong_time = (
            newest - now_ms > rules.timestamp_after_max_ms or now_ms - oldest > rules.timestamp_before_max_ms
        )
    if wrong_time or (rules.compacted and keyless):
        errors = RecordErrors(rules, header, now_ms, may_have_wrong_time=wrong_time, keyless=keyless)
        errors.look_through(fields(body, position, header.count))
        errors.raise_if_any()
    return max(newest, NO_TIMESTAMP)


def recompress(batch: memoryview, rules: AppendRules) -> bytes:
    """The same records with the topic's codec; all other fields as they were. The batch has passed
    `check_batch`."""
    header = read_header(batch)
    codec = rules.codec
    if codec is None:
        return bytes(batch)
    body = records_of(batch, header)
    if codec is Codec.NONE and HEADER_BYTES + len(body) > rules.max_message_bytes:
        _refuse_size(HEADER_BYTES + len(body), rules.max_message_bytes)  # before it is copied
    packed = compress(codec, body, rules.level)
    recoded = assemble(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), packed)
    if len(recoded) > rules.max_message_bytes:
        _refuse_size(len(recoded), rules.max_message_bytes)
    return recoded
