"""How `moldau log dump` writes: lines in columns that fit 80, or JSON lines with every field."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import click

from moldau.cli.log_dump_internal import meaning, sentence
from moldau.cli.message_format import Rendering, encoder, put_bytes, render_headers, to_json
from moldau.cli.output import bold, dim, say
from moldau.log import names
from moldau.log.inspect.batches import BadStretch
from moldau.log.inspect.files import TRANSACTION_INDEX
from moldau.log.inspect.findings import offsets_text
from moldau.log.inspect.indexes import Entry
from moldau.log.scan import Batch
from moldau.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader
from moldau.records.compression import Codec
from moldau.records.record import Record

ENTRY_FIELDS = {
    names.OFFSET_INDEX: ("index", ("offset", "log_position")),
    names.TIME_INDEX: ("timeindex", ("timestamp", "offset")),
    TRANSACTION_INDEX: (
        "txnindex",
        ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset"),
    ),
}
CONTROL_TYPES = {0: "abort", 1: "commit"}
_CONTROL_KEY = struct.Struct(">hh")


class Printer(Protocol):
    def heading(self, path: str) -> None: ...
    def batch_columns(self) -> None: ...
    def batch(self, path: str, batch: Batch, records: list[Record] | None, damage: str) -> None: ...
    def damage(self, path: str, stretch: BadStretch) -> None: ...
    def index_entry(self, path: str, suffix: str, base_offset: int, entry: Entry) -> None: ...
    def fields(self, kind: str, path: str, fields: Mapping[str, Any]) -> None: ...
    def remark(self, path: str, position: int | None, text: str) -> None: ...
    def nothing(self) -> None:
        """The file is empty, as it may be."""
        ...


def entry_fields(suffix: str, base_offset: int, entry: Entry) -> tuple[str, dict[str, int]]:
    """The kind of an entry, and its fields with offsets as they are in the log."""
    kind, titles = ENTRY_FIELDS[suffix]
    fields = dict(zip(titles, entry.fields, strict=True))
    if suffix != TRANSACTION_INDEX:
        fields["offset"] += base_offset
    return kind, fields


def codec_name(header: BatchHeader) -> str:
    try:
        return Codec(header.codec_id).name.lower()
    except ValueError:
        return f"?{header.codec_id}"


def control_type(header: BatchHeader, record: Record) -> str | None:
    """`commit` or `abort` for the marker that ends a transaction."""
    if not header.is_control or record.key is None or len(record.key) < _CONTROL_KEY.size:
        return None
    number = _CONTROL_KEY.unpack_from(record.key)[1]
    return CONTROL_TYPES.get(number, str(number))


def second(timestamp_ms: int) -> str:
    """Local time to the second; the number itself where no calendar knows it."""
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)


def one_line(text: str) -> str:
    """A record stays in its line, whatever is in it."""
    return text.replace("\n", "\\n").replace("\t", "\\t")


class JsonPrinter:
    def heading(self, path: str) -> None:
        pass

    def batch_columns(self) -> None:
        pass

    def batch(self, path: str, batch: Batch, records: list[Record] | None, damage: str) -> None:
        header = batch.header
        self._print(
            {
                "type": "batch",
                "file": path,
                "position": batch.position,
                "size": header.size,
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "count": header.count,
                "leader_epoch": header.leader_epoch,
                "base_timestamp": header.base_timestamp,
                "max_timestamp": header.max_timestamp,
                "timestamp_type": "append" if header.attributes & LOG_APPEND_TIME else "create",
                "codec": codec_name(header),
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "last_sequence": header.last_sequence,
                "transactional": header.is_transactional,
                "control": header.is_control,
                "delete_horizon": bool(header.attributes & DELETE_HORIZON),
                "crc": header.crc,
                "crc_ok": True,
            }
            | ({"damage": damage} if damage else {})
        )
        for record in records or ():
            self._record(path, header, record)

    def _record(self, path: str, header: BatchHeader, record: Record) -> None:
        document: dict[str, Any] = {
            "type": "record",
            "file": path,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
        put_bytes(document, "key", record.key)
        put_bytes(document, "value", record.value)
        headers = []
        for name, value in record.headers:
            shown: dict[str, Any] = {
                "key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            }
            put_bytes(shown, "value", value)
            headers.append(shown)
        document["headers"] = headers
        if (found := meaning(path, record)) is not None:
            document["meaning"] = found
        marker = control_type(header, record)
        if marker is not None:
            document["control"] = marker
        self._print(document)

    def damage(self, path: str, stretch: BadStretch) -> None:
        self._print(
            {
                "type": "damage",
                "file": path,
                "position": stretch.position,
                "size": stretch.end_position - stretch.position,
                "what": stretch.what,
                "crc_ok": False,
            }
        )

    def index_entry(self, path: str, suffix: str, base_offset: int, entry: Entry) -> None:
        kind, fields = entry_fields(suffix, base_offset, entry)
        self._print({"type": kind, "file": path, "position": entry.position, **fields})

    def fields(self, kind: str, path: str, fields: Mapping[str, Any]) -> None:
        self._print({"type": kind, "file": path, **fields})

    def remark(self, path: str, position: int | None, text: str) -> None:
        self._print({"type": "damage", "file": path, "position": position, "what": text})

    def nothing(self) -> None:
        pass

    def _print(self, document: dict[str, Any]) -> None:
        click.echo(to_json(document))


class TextPrinter:
    def __init__(self, key_as: str, value_as: str) -> None:
        self._rendering = Rendering(
            key=encoder(key_as, b"null", terminal=True), value=encoder(value_as, b"null", terminal=True)
        )
        self._tells_meanings = key_as == value_as == "text"  # else the bytes are asked for
        self._first = True

    def heading(self, path: str) -> None:
        if not self._first:
            say("")
        self._first = False
        say(bold(path))

    def batch_columns(self) -> None:
        titles = f"{'OFFSETS':<19}{'POSITION':>12}{'SIZE':>11}{'EPOCH':>7}  {'TIME':<21}CODEC"
        say(click.style(titles, fg="cyan", bold=True))

    def batch(self, path: str, batch: Batch, records: list[Record] | None, damage: str) -> None:
        header = batch.header
        offsets = str(header.base_offset)
        if header.last_offset_delta:
            offsets += f"-{header.last_offset}"
        say(
            f"{offsets:<19}{batch.position:>12}{header.size:>11}{header.leader_epoch:>7}"
            f"  {second(header.max_timestamp):<21}{codec_name(header)}"
        )
        remarks = list(self._remarks(header))
        if remarks:
            say(dim("  " + ", ".join(remarks)))
        if damage:
            say("  " + click.style(f"records cannot be read: {damage}", fg="red"))
        for record in records or ():
            self._record(path, header, record)

    def _remarks(self, header: BatchHeader) -> Any:
        if header.producer_id >= 0:
            yield f"producer {header.producer_id} epoch {header.producer_epoch}"
        if header.base_sequence >= 0:
            sequences = offsets_text(header.base_sequence, header.last_sequence)
            yield sequences.replace("offset", "sequence")
        if header.count != header.last_offset_delta + 1:
            yield f"{header.count} of {header.last_offset_delta + 1} records left"
        if header.attributes & LOG_APPEND_TIME:
            yield "append time"
        if header.is_transactional:
            yield "transactional"
        if header.is_control:
            yield "control"
        if header.attributes & DELETE_HORIZON:
            yield f"tombstones may go from {second(header.base_timestamp)} on"

    def _record(self, path: str, header: BatchHeader, record: Record) -> None:
        if (marker := control_type(header, record)) is not None:
            text = click.style(marker, fg="magenta")
        elif self._tells_meanings and (found := meaning(path, record)) is not None:
            text = one_line(self._rendering.value(sentence(found).encode()).decode())
        else:
            key = self._rendering.key(record.key).decode()
            value = self._rendering.value(record.value).decode()
            text = one_line(f"{key}: {value}")
        headers = render_headers(
            [
                (name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
                for name, value in record.headers
            ],
            self._rendering,
        ).decode()
        say(f"  {dim(str(record.offset))}  {text}" + (dim(f"  [{headers}]") if headers else ""))

    def damage(self, path: str, stretch: BadStretch) -> None:
        size = stretch.end_position - stretch.position
        text = f"{'damaged':<19}{stretch.position:>12}{size:>11}  {stretch.what}"
        say(click.style(text, fg="red"))

    def index_entry(self, path: str, suffix: str, base_offset: int, entry: Entry) -> None:
        _, fields = entry_fields(suffix, base_offset, entry)
        if suffix == names.OFFSET_INDEX:
            say(f"offset {fields['offset']} is at byte {fields['log_position']}")
        elif suffix == names.TIME_INDEX:
            say(f"up to offset {fields['offset']}: {second(fields['timestamp'])} ({fields['timestamp']})")
        else:
            aborted = offsets_text(fields["first_offset"], fields["last_offset"])
            say(f"producer {fields['producer_id']} aborted {aborted}")

    def fields(self, kind: str, path: str, fields: Mapping[str, Any]) -> None:
        match kind:
            case "offset":
                say(f"{fields['topic']}-{fields['partition']}: {fields['offset']}")
            case "epoch":
                say(f"epoch {fields['epoch']} from offset {fields['start_offset']} on")
            case "producer":
                self._producer(fields)
            case _:
                for key, value in fields.items():
                    say(f"{key}: {value}")

    def _producer(self, fields: Mapping[str, Any]) -> None:
        say(
            f"producer {fields['producer_id']} epoch {fields['producer_epoch']}: last sequence"
            f" {fields['last_sequence']} at offset {fields['last_offset']}, {second(fields['timestamp'])}"
        )
        if fields["transaction_first_offset"] >= 0:
            say(dim(f"  has a transaction open from offset {fields['transaction_first_offset']} on"))

    def remark(self, path: str, position: int | None, text: str) -> None:
        at = "" if position is None else f"at byte {position}: "
        say(click.style(f"{at}{text}", fg="yellow"))

    def nothing(self) -> None:
        say(dim("nothing"))
