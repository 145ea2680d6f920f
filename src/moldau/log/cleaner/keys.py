"""The last record of each key, found in a bounded amount of memory whatever the number of keys.

Kafka keeps a map from keys to offsets, and where it is full compacts what it has seen, over and over. Here a
log is compacted in one go: every record leaves an entry (its key, its number) in one of many buckets by its
key's checksum; what does not fit into memory goes to a file. Then each bucket is small enough for a `dict`,
which knows the last record of each of its keys, and a bit per record remembers those that stay.

Keys of up to 15 bytes stand for themselves, longer ones for a cryptographic digest of 16 bytes. Records are
numbered as they come, so bits do not depend on how sparse the offsets have become. Where even the bits would
take too much memory they are made for a window of numbers at a time. Of the memory a quarter is for entries,
half for the `dict`, an eighth for the bits.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct, iter_unpack
from zlib import crc32

from moldau.log.cleaner.output import write_all
from moldau.records import varint
from moldau.records.record import BadRecord
from moldau.runtime.ports import Disk, File

BUCKETS = 256
_BUCKET_MASK = BUCKETS - 1
_SHORT_KEY_BYTES = 15
_ENTRY = Struct("<17pQ")
"""The key with its length, and its record's number, doubled, and one more where its value is null."""
_DICT_BYTES_PER_KEY = 192
"""What a `dict` takes for a key, its number and their place, at worst (measured)."""
WINDOW_RECORDS_MIN = 8 * 1024


class Keys:
    """Collects the keys of a log's records, in order."""

    def __init__(self, disk: Disk, spill_path: str, memory_bytes: int) -> None:
        self.record_count = 0
        self._disk = disk
        self._spill_path = spill_path
        self._memory_bytes = memory_bytes
        self._buckets = [bytearray() for _ in range(BUCKETS)]
        self._held_bytes = 0
        self._file: File | None = None
        self._file_bytes = 0
        self._chunks: list[array[int]] = [array("Q") for _ in range(BUCKETS)]
        """Positions and sizes of a bucket's parts in the file, in turn."""

    def pass_over(self, count: int) -> None:
        """Records that have no say in which ones stay: of markers and aborted transactions."""
        self.record_count += count

    def add(self, body: bytes, count: int) -> None:
        """Take the keys of a batch's records. BadRecord where they are damaged."""
        try:
            self._add(body, count)
        except (IndexError, varint.BadVarint):
            raise BadRecord("found invalid record structure") from None
        self.record_count += count
        self._held_bytes += count * _ENTRY.size
        if self._held_bytes > self._memory_bytes // 4:
            self._spill()

    def _add(self, body: bytes, count: int) -> None:
        """The inner loop of compaction: integers of one byte, and lengths of two, are decoded in line."""
        decode = varint.decode
        buckets = self._buckets
        pack = _ENTRY.pack
        number = self.record_count << 1
        position, stop = 0, len(body)
        for entry in range(number, number + (count << 1), 2):
            byte = body[position]
            if byte > 127 and (more := body[position + 1]) < 128:
                end = position + 2 + (((byte & 127) | more << 7) >> 1)
                position += 3
            else:
                length, position = decode(body, position)
                end = position + length
                position += 1
            if not position < end <= stop:
                raise BadRecord("record length is out of range")
            while body[position] > 127:  # timestamp
                position += 1
            position += 1
            while body[position] > 127:  # offset
                position += 1
            position += 1
            byte = body[position]
            if byte < 128:
                position += 1
                length = byte >> 1
            else:
                length, position = decode(body, position)
            if byte & 1:  # a record without a key is of no use in a compacted log: no entry, and it goes
                position = end
                continue
            key = body[position : position + length]
            position += length
            if position >= end:
                raise BadRecord("found invalid record structure")
            if length > _SHORT_KEY_BYTES:
                key = blake2b(key, digest_size=16).digest()
            buckets[crc32(key) & _BUCKET_MASK] += pack(key, entry | body[position] & 1)
            position = end
        if position != stop:
            raise BadRecord(f"{stop - position} bytes are left after the last record")

    def _spill(self) -> None:
        """Append all buckets to the file."""
        if self._file is None:
            self._file = self._disk.open(self._spill_path, create=True)
        for bucket, chunks in zip(self._buckets, self._chunks, strict=True):
            if bucket:
                write_all(self._file, bucket, self._file_bytes)
                chunks.append(self._file_bytes)
                chunks.append(len(bucket))
                self._file_bytes += len(bucket)
                bucket.clear()
        self._held_bytes = 0

    def last_of_each(self, start: int, stop: int) -> Iterator[int]:
        """Entries of the records, of those numbered from start to before stop, whose key has none later."""
        for bucket in range(BUCKETS):
            entries = (sum(self._chunks[bucket][1::2]) + len(self._buckets[bucket])) // _ENTRY.size
            rounds = 1 + entries * _DICT_BYTES_PER_KEY // (self._memory_bytes // 2)
            for turn in range(rounds):
                last = self._last_in(bucket, turn, rounds)
                yield from (entry for entry in last.values() if start <= entry >> 1 < stop)

    def _last_in(self, bucket: int, turn: int, rounds: int) -> dict[bytes, int]:
        """The last entry of each key in a bucket; a bucket that is too large is looked at in several turns."""
        last: dict[bytes, int] = {}
        for part in self._parts(bucket):
            entries: Iterator[tuple[bytes, int]] = iter_unpack(_ENTRY.format, part)
            if rounds > 1:
                entries = (pair for pair in entries if (crc32(pair[0]) >> 8) % rounds == turn)
            last.update(entries)
        return last

    def _parts(self, bucket: int) -> Iterator[bytes | bytearray]:
        chunks = self._chunks[bucket]
        for at in range(0, len(chunks), 2):
            assert self._file is not None
            yield self._file.pread(chunks[at + 1], chunks[at])
        yield self._buckets[bucket]

    def close(self) -> None:
        """Remove what was written."""
        if self._file is not None:
            self._file.close()
            self._disk.remove(self._spill_path)


class Survivors:
    """Which records stay, asked for in the order of their numbers."""

    def __init__(self, keys: Keys, memory_bytes: int) -> None:
        self._keys = keys
        self._window = max(WINDOW_RECORDS_MIN, memory_bytes // 2)
        """Records whose bits are held at once: two bits each, in an eighth of the memory."""
        self._start = self._stop = 0
        self._kept = bytearray()
        self._null = bytearray()

    def of_batch(self, number: int, count: int) -> tuple[int, int]:
        """For `count` records from a number on: bits of those that are the last of their key, and of those
        among them whose value is null. The lowest bit is the first record's."""
        if number < self._start or number + count > self._stop:
            self._load(number, count)
        at = number - self._start
        first, last, shift = at >> 3, (at + count + 7) >> 3, at & 7
        mask = (1 << count) - 1
        kept = int.from_bytes(self._kept[first:last], "little") >> shift & mask
        null = int.from_bytes(self._null[first:last], "little") >> shift & mask
        return kept, null

    def _load(self, start: int, count: int) -> None:
        window = min(max(self._window, count), self._keys.record_count - start)
        self._start, self._stop = start, start + window
        kept = self._kept = bytearray((window >> 3) + 1)
        null = self._null = bytearray((window >> 3) + 1)
        for entry in self._keys.last_of_each(self._start, self._stop):
            at = (entry >> 1) - start
            bit = 1 << (at & 7)
            kept[at >> 3] |= bit
            if entry & 1:
                null[at >> 3] |= bit
