"""Answers as plain trees in which only what must be equal is left to differ.

Ids, ports and times of now become words for what they are, where they are what they should be: a topic's id becomes
the topic's name, a time within a minute of now becomes `<now>`. What is not what it should be stays as it is, and is
found by the comparison. `MASKS` is the whole list.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from moldau.broker.handlers import ROUTES
from moldau.records.batch import LOG_APPEND_TIME, read_header
from moldau.records.record import iterate_records

from .peers import Peer

NOW_SLACK_MS = 120_000
HEADER_BYTES = 61
BEFORE_LENGTH_BYTES = 12
_RANGE = re.compile(r"within \[(-?\d+), (-?\d+)\]")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![\w-])[\w-]{22}(?![\w-])")

Mask = Callable[[Any, Peer], Any]


def _is_now(value: int) -> bool:
    return abs(value - time.time() * 1000) < NOW_SLACK_MS


def _now(value: Any, _peer: Peer) -> Any:
    return "<now>" if isinstance(value, int) and _is_now(value) else value


def _topic_id(value: Any, peer: Peer) -> Any:
    return f"<id of {peer.topic_names[value]}>" if value in peer.topic_names else value


def _producer_id(value: Any, peer: Peer) -> Any:
    return f"<producer of {peer.producer_names[value]}>" if value in peer.producer_names else value


def _text(value: Any, peer: Peer) -> Any:
    """A message may quote the time, a topic's id, or the address of the broker."""
    if not isinstance(value, str):
        return value
    return value.replace(f":{peer.port}", ":<its port>")


def _without_uuids(value: Any, _peer: Peer) -> Any:
    return _UUID.sub("<uuid>", value) if isinstance(value, str) else value


def _listed(value: Any, _peer: Peer) -> Any:
    """ListGroups' answer; others have more of a group, and an order."""
    if all({"members", "topics"}.isdisjoint(group) for group in value):
        return sorted(value, key=lambda group: group["group_id"])
    return value


def _served(value: Any, _peer: Peer) -> Any:
    return [api for api in value if api["api_key"] in ROUTES]


MASKS: dict[str, tuple[Mask, str]] = {
    "api_keys": (_served, "Moldau advertises what it serves; for these Kafka's versions are the measure"),
    "throttle_time": (lambda _value, _peer: "<any>", "a pause depends on the load"),
    "cluster_id": (lambda value, _peer: value and "<cluster id>", "each cluster draws its own"),
    "topic_id": (_topic_id, "each cluster draws its own; compared by the topic that it names"),
    "session_id": (lambda value, _peer: value and "<session>", "drawn at random"),
    "port": (lambda value, peer: "<its port>" if value == peer.port else value, "two brokers, two ports"),
    "log_append_time": (_now, "the time of the append"),
    "log_dir": (lambda value, _peer: value and "<log dir>", "each broker has its own folder"),
    "total_bytes": (lambda value, _peer: value > 0 or value, "the size of the disk"),
    "usable_bytes": (lambda value, _peer: value > 0 or value, "the room on the disk changes all the time"),
    "groups": (_listed, "a list of groups comes in the order of a hash table"),
    "producer_id": (
        _producer_id,
        "given by each cluster; compared by the transactional id that it belongs to",
    ),
    "transaction_start_time": (_now, "the time at which a transaction was begun"),
    "member_id": (_without_uuids, "drawn at random by the coordinator"),
    "leader": (_without_uuids, "a member's id"),
    "error_message": (_text, "it may quote the broker's address"),
}


def plain(value: Any, peer: Peer, *, decoded: bool = False) -> Any:
    """The answer as dictionaries, lists and values. With `decoded`, record batches are compared by their records."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _field(field.name, getattr(value, field.name), peer, decoded)
            for field in fields(value)
        }
    if isinstance(value, tuple | list):
        return [plain(item, peer, decoded=decoded) for item in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Enum):
        return value.name
    return value


def _field(name: str, value: Any, peer: Peer, decoded: bool) -> Any:
    if name == "records":
        return None if value is None else list(batches(bytes(value), decoded))
    value = plain(value, peer, decoded=decoded)
    return MASKS[name][0](value, peer) if name in MASKS else value


def batches(records: bytes, decoded: bool) -> Iterator[Any]:
    """Each stored batch: its header's fields and its bytes.

    What a limit cut off of the last one is left out: Kafka sends it, and every client throws it away.
    """
    position = 0
    while position + HEADER_BYTES <= len(records):
        header = read_header(records, position)
        stop = position + BEFORE_LENGTH_BYTES + header.length
        if stop > len(records):
            break
        shown: dict[str, Any] = header._asdict()
        batch = records[position:stop]
        if header.attributes & LOG_APPEND_TIME and _is_now(header.max_timestamp):
            shown |= {"max_timestamp": "<now>", "crc": "<of now>"}
        if decoded:
            shown |= {"length": "<any>", "crc": "<any>"}
            shown["records"] = [
                (record.offset, record.key, record.value, record.headers) for record in iterate_records(batch)
            ]
        else:
            shown["records"] = batch[HEADER_BYTES:]
        yield shown
        position = stop


def without_times(text: Any) -> Any:
    """A message with the range of times that it quotes told as minutes from now."""

    def from_now(found: re.Match[str]) -> str:
        low, high = (round((int(bound) - time.time() * 1000) / 60_000) for bound in found.groups())
        return f"within [now {low:+} min, now {high:+} min]"

    return _RANGE.sub(from_now, text) if isinstance(text, str) else text


def differences(kafka: Any, moldau: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two trees differ: a path such as `topics[0].partitions[2].offset`, and the two values."""
    if isinstance(kafka, dict) and isinstance(moldau, dict):
        for key in {**kafka, **moldau}:
            yield from differences(
                kafka.get(key, "<absent>"), moldau.get(key, "<absent>"), f"{path}.{key}" if path else key
            )
    elif isinstance(kafka, list) and isinstance(moldau, list):
        if len(kafka) != len(moldau):
            yield f"{path}.length", len(kafka), len(moldau)
        for index, (left, right) in enumerate(zip(kafka, moldau, strict=False)):
            yield from differences(left, right, f"{path}[{index}]")
    elif kafka != moldau:
        yield path, kafka, moldau
