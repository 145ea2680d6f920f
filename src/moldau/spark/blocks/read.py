"""`read_split`: a range of offsets as Arrow record batches, with the columns that were asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from moldau.spark.blocks.batches import Blocks
from moldau.spark.blocks.client_library import LibraryReader
from moldau.spark.blocks.client_settings import ClientSettings, client_of
from moldau.spark.blocks.columns import TYPES, Columns, bytes_scalar, int32_scalar
from moldau.spark.blocks.decode import Decoder, unfolder_for, usual
from moldau.spark.blocks.errors import CorruptData, DataLoss, UnsupportedFormat
from moldau.spark.blocks.fetching import Fetcher
from moldau.spark.blocks.settings import ReadSettings, Split

logger = logging.getLogger("moldau.spark")

ROWS_MAX: Final = 65_536
"""Of one record batch."""
JOINED_BYTES_MAX: Final = 256 * 1024
"""Smaller batches are put together up to here."""


def read_split(
    settings: ReadSettings, split: Split, *, decode: Decoder | None = None
) -> Iterator[pa.RecordBatch]:
    """The visible records of a range, in order. None of the batches is empty; an empty range has none.

    ReadFailed, or one of its kinds, where it cannot be read. With `fail_on_data_loss` off, what is gone is skipped.
    """
    rows = Rows(settings.schema, split)
    client = client_of(settings.client_config)
    try:
        if client is None:
            found = LibraryReader(settings, split).columns(settings.schema.names)
        else:
            found = read_columns(settings, client, split, decode or usual)
        for columns in found:
            yield from rows.batches(columns)
    except DataLoss as reason:
        if settings.fail_on_data_loss:
            raise
        logger.warning("%s", reason)


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, where they are small: each costs Spark as much as hundreds of rows."""
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if small and size + batch.nbytes > JOINED_BYTES_MAX:
            yield _one_of(small)
            small, size = [], 0
        if batch.nbytes > JOINED_BYTES_MAX:
            yield batch
        else:
            small.append(batch)
            size += batch.nbytes
    if small:
        yield _one_of(small)


def _one_of(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def read_columns(
    settings: ReadSettings, client: ClientSettings, split: Split, decode: Decoder
) -> Iterator[Columns]:
    """By Fetch requests of our own."""
    blocks = Blocks(client.check_crc)
    fetcher = Fetcher(settings, client, split)
    try:
        for fetched in fetcher.fetch():
            records, aborted = fetched.answer.records, fetched.answer.aborted
            for block in blocks.of(records, fetched.found, aborted, unfolder_for(decode)):
                yield decode(block, settings.schema.names, fetched.first_offset, fetcher.split.next_offset)
    except (CorruptData, UnsupportedFormat) as reason:
        raise type(reason)(f"reading {split}: {reason}.") from None


class Rows:
    """Columns put together as record batches of the schema."""

    def __init__(self, schema: pa.Schema, split: Split) -> None:
        for field in schema:
            expected = TYPES.get(field.name)
            if expected is None:
                raise ValueError(f"records have no column {field.name!r}")
            if field.type != expected:
                raise ValueError(f"the column {field.name!r} is of the type {expected}, not {field.type}")
        self._schema = schema
        self._scalars = {
            "topic": bytes_scalar(TYPES["topic"], split.topic.encode()),
            "partition": int32_scalar(split.partition),
        }
        self._constants: Columns = {}

    def batches(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        count = len(columns["offset"])
        for start in range(0, count, ROWS_MAX):
            length = min(ROWS_MAX, count - start)
            arrays = [
                self._constant(name, length) if name in self._scalars else columns[name].slice(start, length)
                for name in self._schema.names
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, length: int) -> pa.Array:
        """A column that is the same in every row, made anew only for a longer batch than before."""
        made = self._constants.get(name)
        if made is None or len(made) < length:
            made = self._constants[name] = pa.repeat(self._scalars[name], length)
        return made.slice(0, length)
