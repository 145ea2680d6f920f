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
  `UNFOLDED_BYTES_MAX`): a client that frames records wrongly is found at its first message.
- Otherwise the first record of an uncompressed batch is walked, and the count must fit into its size.
What is given up: a client that sends a right checksum, right header and right first record over damaged
further ones is not caught here. Consumers will find the damage, and so will a look-up by time that comes to
that batch (CORRUPT_MESSAGE). Nor is a max timestamp put right that lies between the base and what the topic
allows: look-ups by time believe it. Offsets, sequences, recovery and fetches rely on headers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from crc32c import crc32c

from moldau.base.errors import ErrorCode
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
from moldau.records.compression import CODEC_BY_NAME, Codec, compress
from moldau.records.record import RECORD_BYTES_MIN, BadRecord, Record, assemble, iterate_records, records_of
from moldau.records.walk import Walked, plain_record_end, walk

WALKED_RECORDS_MAX = 4
UNFOLDED_BYTES_MAX = 4096
LENGTH_MIN_OF_ANY_MAGIC = 14
ERRORS_SHOWN_MAX = 3
_ZSTD = int(Codec.ZSTD)
_CODEC_OR_LOG_APPEND_TIME = CODEC_MASK | LOG_APPEND_TIME
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
class RecordError:
    batch_index: int
    message: str


class Refused(Exception):
    """A batch that is not appended. `message` is what Kafka answers, None where it answers only the code."""

    def __init__(
        self,
        code: ErrorCode,
        reason: str,
        *,
        message: str | None = None,
        record_errors: tuple[RecordError, ...] = (),
        before_append: bool = False,
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.message = message
        self.record_errors = record_errors
        self.before_append = before_append
        """Kafka refuses these before it looks at the log, and answers log start offset -1."""


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


def check_batch(
    buffer: memoryview, start: int, stop: int, rules: AppendRules, now_ms: int, zstd_allowed: bool
) -> HeaderFields:
    """Check the one batch in buffer[start:stop] as a leader does, and make its timestamps the topic's, in
    place.

    Returns the header's fields as they are afterwards (see `BatchHeader` for their order); raises `Refused`.
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
        newest = _check_records(buffer, start, stop, BatchHeader._make(header), rules, now_ms)
    elif count == 1 and plain_record_end(buffer, start + HEADER_BYTES, stop) == stop:
        newest = base_timestamp
    else:
        newest = _check_plain_records(buffer, start, stop, header, rules, now_ms)
    if rules.log_append_time:
        set_timestamps(buffer, start, stop, attributes | LOG_APPEND_TIME, now_ms)
    elif newest != max_timestamp or attributes & LOG_APPEND_TIME:
        set_timestamps(buffer, start, stop, attributes & ~LOG_APPEND_TIME, newest)
    else:
        return header
    fields: HeaderFields = HEADER.unpack_from(buffer, start)
    return fields


def _is_suspicious(header: HeaderFields, rules: AppendRules, now_ms: int) -> bool:
    """Whether the header's timestamps contradict each other, or some record's is out of the topic's range."""
    base_timestamp, max_timestamp = header[7], header[8]
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
    count = header[12]
    try:
        if count > WALKED_RECORDS_MAX:
            if not plain_record_end(buffer, start + HEADER_BYTES, stop):
                walk(buffer, start + HEADER_BYTES, stop, 1)
            if count * RECORD_BYTES_MIN > stop - start - HEADER_BYTES:
                raise BadRecord(f"{count} records cannot fit into {stop - start} bytes")
            return header[8]
        position, _, max_delta, _, _ = walk(buffer, start + HEADER_BYTES, stop, count)
        if position != stop:
            raise BadRecord(f"{stop - position} bytes are left after the last record")
    except BadRecord as bad:
        raise Refused(ErrorCode.invalid_record, str(bad)) from None
    newest = header[7] + max_delta
    if newest == header[8]:
        return newest
    return _check_records(buffer, start, stop, BatchHeader._make(header), rules, now_ms)


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
    buffer: memoryview, start: int, stop: int, header: BatchHeader, rules: AppendRules, now_ms: int
) -> int:
    """Walk the records where it is worth it (see the module's head); returns the batch's true max
    timestamp."""
    if header.codec_id:
        _check_codec(buffer, start, stop, header.codec_id)
        if not _needs_unfolding(header, rules, now_ms):
            return header.max_timestamp
    try:
        _, min_delta, max_delta, keyless, _ = walk_batch(buffer[start:stop], header)
    except BadRecord as bad:
        raise Refused(ErrorCode.invalid_record, str(bad)) from None
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
        _refuse_records(buffer[start:stop], rules, now_ms)
    return max(newest, NO_TIMESTAMP)


def _check_codec(buffer: memoryview, start: int, stop: int, codec: int) -> None:
    if codec > Codec.ZSTD:
        raise Refused(ErrorCode.unsupported_compression_type, f"unknown codec {codec}")
    if codec == Codec.LZ4 and (
        stop - start <= HEADER_BYTES + 7 or not buffer[start + _LZ4_FLAGS_POSITION] & _LZ4_INDEPENDENT_BLOCKS
    ):
        raise Refused(ErrorCode.invalid_record, "lz4 blocks that depend on each other cannot be read by all")


def _needs_unfolding(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    return (
        rules.compacted
        or (rules.codec is not None and rules.codec != header.codec_id)
        or (rules.log_append_time and header.attributes & LOG_APPEND_TIME != 0)
        or (header.count <= WALKED_RECORDS_MAX and header.size <= UNFOLDED_BYTES_MAX)
        or _is_suspicious(header, rules, now_ms)
    )


def walk_batch(batch: memoryview, header: BatchHeader) -> Walked:
    """Walk all records of a batch; BadRecord where they are not what the header says."""
    if header.codec_id == Codec.NONE:
        body, position = batch, HEADER_BYTES
    else:
        body, position = memoryview(records_of(batch, header)), 0
    walked = walk(body, position, len(body), header.count)
    if walked[0] != len(body):
        raise BadRecord(f"{len(body) - walked[0]} bytes are left after the last record")
    if header.codec_id and not walked[4]:
        raise BadRecord("offset deltas are not 0, 1, 2, ...")
    return walked


def _refuse_records(batch: memoryview, rules: AppendRules, now_ms: int) -> None:
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    claims_append_time = batch[ATTRIBUTES_POSITION] & LOG_APPEND_TIME
    errors: list[RecordError] = []
    code = ErrorCode.invalid_record
    for index, record in enumerate(iterate_records(batch)):
        if rules.compacted and record.key is None:
            text = f"Compacted topic cannot accept message without key in topic partition {rules.partition}"
            errors.append(RecordError(index, text))
        elif (
            not rules.log_append_time
            and record.timestamp != NO_TIMESTAMP
            and not earliest <= record.timestamp <= latest
        ):
            code = ErrorCode.invalid_timestamp
            text = (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range."
                f" The timestamp should be within [{earliest}, {latest}]"
            )
            errors.append(RecordError(index, text))
        elif rules.log_append_time and claims_append_time:
            code = ErrorCode.invalid_timestamp
            text = f"Invalid timestamp type in message {_shown(record)}."
            text += " Producer should not set timestamp type to LogAppendTime."
            errors.append(RecordError(index, text))
    if not errors:
        return
    if code is ErrorCode.invalid_timestamp:
        message = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = ", ".join(
            f"RecordError(batchIndex={e.batch_index}, message='{e.message}')"
            for e in errors[:ERRORS_SHOWN_MAX]
        )
        message = (
            f"One or more records have been rejected due to {len(errors)} record errors in total,"
            f" and only showing the first three errors at most: [{shown}]"
        )
    raise Refused(code, message, message=message, record_errors=tuple(errors))


def _shown(record: Record) -> str:
    """A record as Kafka quotes it in a message."""
    key_bytes, value_bytes = len(record.key or b""), len(record.value or b"")
    return (
        f"DefaultRecord(offset={record.offset}, timestamp={record.timestamp},"
        f" key={key_bytes} bytes, value={value_bytes} bytes)"
    )


def recompress(batch: memoryview, rules: AppendRules) -> bytes:
    """The same records with the topic's codec; all other fields as they were. The batch has passed
    `check_batch`."""
    header = read_header(batch)
    codec = rules.codec
    if codec is None:
        return bytes(batch)
    body = records_of(batch, header)
    packed = compress(codec, body, rules.level)
    recoded = assemble(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), packed)
    if len(recoded) > rules.max_message_bytes:
        _refuse_size(len(recoded), rules.max_message_bytes)
    return recoded
