"""Why a batch is not appended, in Kafka's words.

Of the records that are refused, `RECORD_ERRORS_MAX` are named in the answer, where Kafka's LogValidator names every
one; how many there are in total is told as by Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from moldau.base.errors import ErrorCode
from moldau.base.limits import RECORD_ERRORS_MAX
from moldau.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader
from moldau.records.walk import Fields

ERRORS_SHOWN_MAX = 3
"""Of those that are named, how many the message quotes."""


class TopicRules(Protocol):
    """The part of `AppendRules` that single records are refused by."""

    @property
    def partition(self) -> str: ...
    @property
    def compacted(self) -> bool: ...
    @property
    def log_append_time(self) -> bool: ...
    @property
    def timestamp_before_max_ms(self) -> int: ...
    @property
    def timestamp_after_max_ms(self) -> int: ...


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


class RecordErrors:
    """What is wrong with a batch's records, in the order in which Kafka's LogValidator looks."""

    def __init__(
        self,
        rules: TopicRules,
        header: BatchHeader,
        now_ms: int,
        *,
        may_have_wrong_time: bool,
        keyless: int,
    ) -> None:
        self._rules = rules
        self._header = header
        self._earliest = now_ms - rules.timestamp_before_max_ms
        self._latest = now_ms + rules.timestamp_after_max_ms
        self._may_have_wrong_time = may_have_wrong_time
        self._keyless = keyless
        self._code = ErrorCode.invalid_record
        self._named: list[RecordError] = []

    def look_through(self, records: Iterable[Fields]) -> None:
        """Until all is known that is told: the code, and the records that are named."""
        rules, header = self._rules, self._header
        claims_append_time = header.attributes & LOG_APPEND_TIME
        for index, record in enumerate(records):
            timestamp = header.max_timestamp if claims_append_time else header.base_timestamp + record[0]
            if rules.compacted and record[2] < 0:
                self._name(index, self._no_key)
            elif rules.log_append_time:
                if claims_append_time:
                    self._code = ErrorCode.invalid_timestamp
                    self._name(index, self._wrong_type, timestamp, record)
            elif timestamp != NO_TIMESTAMP and not self._earliest <= timestamp <= self._latest:
                self._code = ErrorCode.invalid_timestamp
                self._name(index, self._out_of_range, timestamp, record)
            is_code_known = self._code is ErrorCode.invalid_timestamp or not self._may_have_wrong_time
            if is_code_known and len(self._named) == RECORD_ERRORS_MAX:
                return

    def raise_if_any(self) -> None:
        if not self._named:
            return
        if self._code is ErrorCode.invalid_timestamp:
            message = "One or more records have been rejected due to invalid timestamp"
        else:
            shown = ", ".join(
                f"RecordError(batchIndex={e.batch_index}, message='{e.message}')"
                for e in self._named[:ERRORS_SHOWN_MAX]
            )
            message = (
                f"One or more records have been rejected due to {self._keyless} record errors in total,"
                f" and only showing the first three errors at most: [{shown}]"
            )
        raise Refused(self._code, message, message=message, record_errors=tuple(self._named))

    def _name(self, index: int, text: Callable[..., str], *arguments: object) -> None:
        if len(self._named) < RECORD_ERRORS_MAX:
            self._named.append(RecordError(index, text(*arguments)))

    def _no_key(self) -> str:
        place = self._rules.partition
        return f"Compacted topic cannot accept message without key in topic partition {place}"

    def _out_of_range(self, timestamp: int, record: Fields) -> str:
        return (
            f"Timestamp {timestamp} of message with offset {self._header.base_offset + record[1]} is out of"
            f" range. The timestamp should be within [{self._earliest}, {self._latest}]"
        )

    def _wrong_type(self, timestamp: int, record: Fields) -> str:
        _, offset_delta, key_bytes, value_bytes = record
        shown = (
            f"DefaultRecord(offset={self._header.base_offset + offset_delta}, timestamp={timestamp},"
            f" key={max(key_bytes, 0)} bytes, value={max(value_bytes, 0)} bytes)"
        )
        return f"Invalid timestamp type in message {shown}. Producer should not set timestamp type to LogAppendTime."
