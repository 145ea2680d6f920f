"""What the records of the cluster's own topics say: offsets and members of groups, and states of transactions.

They are Kafka's formats, so the logs of Apache Kafka are told as well. What no coordinator would understand is
left as the bytes that it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from typing import Any
from uuid import UUID

from moldau.base.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.log import names
from moldau.records.record import Record


def meaning(path: str, record: Record) -> dict[str, Any] | None:
    """The kind of a record and its fields, for JSON; none where its log is an ordinary topic's. `path`: its segment."""
    partition = names.log_of(os.path.basename(os.path.dirname(os.path.abspath(path))))
    if partition is None or record.key is None:
        return None
    found: Any = None
    if partition.topic == CONSUMER_OFFSETS:
        from moldau.coordinator.group import records as group_records

        found = group_records.decode(record.key, record.value)
    elif partition.topic == TRANSACTION_STATE:
        from moldau.coordinator.transaction import records as transaction_records

        found = transaction_records.decode(record.key, record.value)
    return None if found is None else {"kind": type(found).__name__, **_plain(found)}


def sentence(found: Mapping[str, Any]) -> str:
    """`OffsetCommitted group_id=billing topic=orders partition=0 offset=30 ...`"""
    return f"{found['kind']} {_pairs({name: value for name, value in found.items() if name != 'kind'})}"


def _plain(value: Any) -> Any:
    """What JSON can say; bytes, which only the group's members understand, by their number."""
    if isinstance(value, Enum):
        return getattr(value, "label", value.name)
    if isinstance(value, UUID):
        return names.id_text(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if hasattr(value, "_asdict"):
        return {name: _plain(field) for name, field in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(field) for name, field in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(item) for item in value]
    return value


def _pairs(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_text(value)}" for name, value in fields.items())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + _pairs(value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return "-" if value is None else str(value)
