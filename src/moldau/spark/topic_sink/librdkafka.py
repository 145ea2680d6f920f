"""A producer of librdkafka's by its C API, which takes the rows of a whole Arrow batch in one call.

confluent-kafka's own producer wants a Python object and a call for each record; that is more work than all that
librdkafka does for it. The library is the one that confluent-kafka has loaded, with all that it is configured by; the
errors raised are confluent-kafka's. Records are copied, so rows are free when `produce` returns.

What confluent-kafka adds to librdkafka is not here: callbacks for tokens and logs, its AWS IAM tokens. The structures
are those of rdkafka.h, which are part of its stable interface: rd_kafka_message_t, rd_kafka_vu_t,
rd_kafka_topic_partition_t.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException, TopicPartition, cimpl

Undelivered = Callable[[KafkaError, str, int], None]
"""Why, and the record's topic and partition."""

PRODUCER: Final = 0
COPY, PARTITION_OF_EACH = 0x2, 0x8
PURGE_QUEUED_AND_IN_FLIGHT: Final = 0x1 | 0x2
ANY_PARTITION: Final = -1
TEXT_BYTES_MAX: Final = 512
TOPICS_MAX: Final = 1000
"""How many topics' handles a producer keeps, the ones used last."""

MESSAGE: Final = np.dtype(
    {
        "names": ["err", "partition", "payload", "len", "key", "key_len"],
        "formats": ["i4", "i4", "u8", "u8", "u8", "u8"],
        "offsets": [0, 16, 24, 32, 40, 48],
        "itemsize": 72,
    }
)
ARGUMENT: Final = np.dtype(
    {
        "names": ["kind", "first", "second", "third"],
        "formats": ["i4", "u8", "u8", "u8"],
        "offsets": [0, 8, 16, 24],
    }
    | {"itemsize": 72}
)
"""rd_kafka_vu_t: one of the parts that `produce_each` gives a record."""
OF_TOPIC, OF_PARTITION, OF_VALUE, OF_KEY, OF_FLAGS, OF_HEADER = 2, 3, 4, 5, 7, 9


class _Report(ctypes.Structure):
    """The head of an rd_kafka_message_t."""

    _fields_ = [("err", c_int), ("topic", c_void_p), ("partition", c_int32)]


class _Offset(ctypes.Structure):
    """The head of an rd_kafka_topic_partition_t."""

    _fields_ = [
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
    ]


ON_ERROR: Final = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
ON_DELIVERY: Final = ctypes.CFUNCTYPE(None, c_void_p, POINTER(_Report), c_void_p)

_library = ctypes.CDLL(cimpl.__file__)  # a name is looked up in what it was linked with, too


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(_library, f"rd_kafka_{name}", None)
    if found is None:
        raise ImportError(
            f"this build of confluent-kafka hides rd_kafka_{name} of its librdkafka: install the wheel from PyPI"
        )
    found.restype, found.argtypes = result, arguments
    return found


_conf_new = _function("conf_new", c_void_p)
_conf_set = _function("conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_destroy = _function("conf_destroy", None, c_void_p)
_conf_set_error_cb = _function("conf_set_error_cb", None, c_void_p, ON_ERROR)
_conf_set_dr_msg_cb = _function("conf_set_dr_msg_cb", None, c_void_p, ON_DELIVERY)
_new = _function("new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_destroy = _function("destroy", None, c_void_p)
_poll = _function("poll", c_int, c_void_p, c_int)
_flush = _function("flush", c_int, c_void_p, c_int)
_purge = _function("purge", c_int, c_void_p, c_int)
_queued = _function("outq_len", c_int, c_void_p)
_fatal_error = _function("fatal_error", c_int, c_void_p, c_char_p, c_size_t)
_last_error = _function("last_error", c_int)
_topic_new = _function("topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
_topic_destroy = _function("topic_destroy", None, c_void_p)
_topic_name = _function("topic_name", c_char_p, c_void_p)
_produce_batch = _function("produce_batch", c_int, c_void_p, c_int32, c_int, c_void_p, c_int)
_produceva = _function("produceva", c_void_p, c_void_p, c_void_p, c_size_t)
_error_code = _function("error_code", c_int, c_void_p)
_error_string = _function("error_string", c_char_p, c_void_p)
_error_is_fatal = _function("error_is_fatal", c_int, c_void_p)
_error_is_retriable = _function("error_is_retriable", c_int, c_void_p)
_error_requires_abort = _function("error_txn_requires_abort", c_int, c_void_p)
_error_destroy = _function("error_destroy", None, c_void_p)
_init_transactions = _function("init_transactions", c_void_p, c_void_p, c_int)
_begin_transaction = _function("begin_transaction", c_void_p, c_void_p)
_send_offsets = _function("send_offsets_to_transaction", c_void_p, c_void_p, c_void_p, c_void_p, c_int)
_commit_transaction = _function("commit_transaction", c_void_p, c_void_p, c_int)
_abort_transaction = _function("abort_transaction", c_void_p, c_void_p, c_int)
_group_new = _function("consumer_group_metadata_new", c_void_p, c_char_p)
_group_destroy = _function("consumer_group_metadata_destroy", None, c_void_p)
_offsets_new = _function("topic_partition_list_new", c_void_p, c_int)
_offsets_add = _function("topic_partition_list_add", POINTER(_Offset), c_void_p, c_char_p, c_int32)
_offsets_destroy = _function("topic_partition_list_destroy", None, c_void_p)
_allocate = _function("mem_malloc", c_void_p, c_void_p, c_size_t)


class Producer:
    """Freed with its last user: a call that hangs in another thread keeps it."""

    _handle: int | None = None

    def __init__(
        self, config: Mapping[str, str], on_error: Callable[[KafkaError], None], on_undelivered: Undelivered
    ) -> None:
        self._process_id = os.getpid()
        self._topics: OrderedDict[str, int] = OrderedDict()
        self._callbacks = error_callback(on_error), delivery_callback(on_undelivered)
        self._handle = new_handle({**config, "delivery.report.only.error": "true"}, *self._callbacks)

    def __len__(self) -> int:
        """Records that have no answer yet."""
        return int(_queued(self._handle))

    def produce(self, topic: str, messages: Any) -> int:
        """Queue these, an array of MESSAGE: how many were taken before the queue was full. KafkaException where one
        can never be delivered.
        """
        place = messages.ctypes.data
        taken = int(
            _produce_batch(self._topic(topic), ANY_PARTITION, COPY | PARTITION_OF_EACH, place, len(messages))
        )
        if taken < len(messages):
            errors = messages["err"]
            refused = errors[(errors != 0) & (errors != KafkaError._QUEUE_FULL)]
            if len(refused):
                raise KafkaException(KafkaError(int(refused[0])))
        return taken

    def produce_each(self, topic: str, arguments: Any, starts: Any) -> int:
        """As `produce`, for records that have headers: an array of ARGUMENT, and where in it each record begins, and
        the last one ends.
        """
        handle, topic_handle = self._handle, self._topic(topic)
        arguments["first"][arguments["kind"] == OF_TOPIC] = topic_handle
        address, places = arguments.ctypes.data, starts.tolist()
        for taken, (place, behind) in enumerate(itertools.pairwise(places)):
            failure = _produceva(handle, address + place * ARGUMENT.itemsize, behind - place)
            if failure:
                error = taken_error(failure)
                if error.code() == KafkaError._QUEUE_FULL:
                    return taken
                raise KafkaException(error)
        return len(places) - 1

    def poll(self, timeout_s: float) -> None:
        """Let the callbacks run; wait for the first, where there is none yet."""
        _poll(self._handle, millis(timeout_s))

    def flush(self, timeout_s: float) -> None:
        _flush(self._handle, millis(timeout_s))

    def purge(self) -> None:
        _purge(self._handle, PURGE_QUEUED_AND_IN_FLIGHT)

    def init_transactions(self, timeout_s: float) -> None:
        check(_init_transactions(self._handle, millis(timeout_s)))

    def begin_transaction(self) -> None:
        check(_begin_transaction(self._handle))

    def send_offsets_to_transaction(self, offset: TopicPartition, group: str, timeout_s: float) -> None:
        """One offset with its metadata, for a group without members."""
        offsets, of_group = _offsets_new(1), _group_new(group.encode())
        try:
            add_offset(offsets, offset)
            check(_send_offsets(self._handle, offsets, of_group, millis(timeout_s)))
        finally:
            _offsets_destroy(offsets)
            _group_destroy(of_group)

    def commit_transaction(self, timeout_s: float) -> None:
        check(_commit_transaction(self._handle, millis(timeout_s)))

    def abort_transaction(self, timeout_s: float) -> None:
        check(_abort_transaction(self._handle, millis(timeout_s)))

    def _topic(self, name: str) -> int:
        found = self._topics.pop(name, None) or _topic_new(self._handle, name.encode(), None)
        if not found:
            raise KafkaException(KafkaError(_last_error()))
        self._topics[name] = found
        if len(self._topics) > TOPICS_MAX:
            _topic_destroy(self._topics.popitem(last=False)[1])
        return int(found)

    def __del__(self) -> None:
        """Not in a forked process, where its threads are not, nor while Python ends."""
        if self._handle is None or sys.is_finalizing() or self._process_id != os.getpid():
            return
        for topic in self._topics.values():
            _topic_destroy(topic)
        _destroy(self._handle)
        self._handle = None


def new_handle(config: Mapping[str, str], on_error: Any, on_delivery: Any) -> int:
    settings, text = _conf_new(), ctypes.create_string_buffer(TEXT_BYTES_MAX)
    _conf_set_error_cb(settings, on_error)
    _conf_set_dr_msg_cb(settings, on_delivery)
    for name, value in config.items():
        if _conf_set(settings, name.encode(), value.encode(), text, TEXT_BYTES_MAX) != 0:
            _conf_destroy(settings)
            raise invalid(text)
    handle = _new(PRODUCER, settings, text, TEXT_BYTES_MAX)
    if not handle:
        _conf_destroy(settings)
        raise invalid(text)
    return int(handle)


def error_callback(on_error: Callable[[KafkaError], None]) -> Any:
    def called(handle: int, code: int, reason: bytes, _opaque: Any) -> None:
        if code != KafkaError._FATAL:
            on_error(KafkaError(code, reason.decode(errors="replace")))
            return
        text = ctypes.create_string_buffer(TEXT_BYTES_MAX)
        on_error(
            KafkaError(_fatal_error(handle, text, TEXT_BYTES_MAX), text.value.decode(errors="replace"), True)
        )

    return ON_ERROR(called)


def delivery_callback(on_undelivered: Undelivered) -> Any:
    def called(_handle: int, report: Any, _opaque: Any) -> None:
        if report[0].err:
            topic = _topic_name(report[0].topic).decode()
            on_undelivered(KafkaError(report[0].err), topic, report[0].partition)

    return ON_DELIVERY(called)


def add_offset(offsets: int, offset: TopicPartition) -> None:
    """The list frees the metadata: they are allocated as librdkafka does it."""
    added = _offsets_add(offsets, offset.topic.encode(), offset.partition)[0]
    metadata = (offset.metadata or "").encode()
    added.offset = offset.offset
    added.metadata = _allocate(None, len(metadata) + 1)
    added.metadata_size = len(metadata) + 1  # copies of the list have the zero, too
    ctypes.memmove(added.metadata, metadata, len(metadata) + 1)


def check(failure: int | None) -> None:
    if failure:
        raise KafkaException(taken_error(failure))


def taken_error(failure: int) -> KafkaError:
    try:
        return KafkaError(
            _error_code(failure),
            _error_string(failure).decode(errors="replace"),
            bool(_error_is_fatal(failure)),
            bool(_error_is_retriable(failure)),
            bool(_error_requires_abort(failure)),
        )
    finally:
        _error_destroy(failure)


def invalid(text: Any) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode(errors="replace")))


def millis(seconds: float) -> int:
    return int(seconds * 1000)
