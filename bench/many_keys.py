"""`python -m bench.many_keys`: compact a log of 20 million distinct keys in 5 GB, and say what it took.

The log is made in a temporary folder without a broker; the compaction is the broker's own, in a child process. A tenth
of the keys is written twice. Afterwards the log is counted: every key once, and as the last one wrote it.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import tempfile
import time
from pathlib import Path

from moldau.log import names
from moldau.log.cleaner.job import Job, Replaced, Source, Summary
from moldau.log.cleaner.work import compact
from moldau.log.index import read_waiting
from moldau.log.scan import checked_batches
from moldau.records.batch import read_header
from moldau.records.record import Record, assemble, build_batch, encode_records, records_of
from moldau.runtime.ports import Runtime
from moldau.runtime.real import run
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

RECORDS_PER_BATCH = 64
KEY = b"customer-%011d"
SEGMENT_BYTES = 1 << 30


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.many_keys", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--keys", type=int, default=20_000_000)
    parser.add_argument("--bytes", type=int, default=5_000_000_000, dest="total_bytes")
    parser.add_argument("--buffer", type=int, default=128 << 20, help="log.cleaner.dedupe.buffer.size")
    parser.add_argument("--folder", type=Path, help="where the log is made (a temporary folder otherwise)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moldau-many-keys-", dir=options.folder) as folder:
        began = time.monotonic()
        sources = make_log(Path(folder), options.keys, options.total_bytes)
        print(
            f"made {sum(s.size for s in sources) / 1e9:.2f} GB in {time.monotonic() - began:.0f} s",
            flush=True,
        )
        summary, reports = run_compaction(folder, sources, options.buffer)
        show(summary, options.buffer)
        left = count_keys(folder, reports)
    print(f"{left:,} keys are left, each once")
    return 0 if left == options.keys else 1


def make_log(folder: Path, keys: int, total_bytes: int) -> list[Source]:
    """Every key once, and then a tenth of them again."""
    count = keys + keys // 10
    value = bytes(max(10, total_bytes // count - 30))
    records = [Record(i, 0, KEY % 0, value) for i in range(RECORDS_PER_BATCH)]
    header = read_header(build_batch(records))
    body = bytearray(encode_records(records, 0, 0))
    places = [i for i in range(len(body)) if body.startswith(KEY % 0, i)]
    key_bytes = len(KEY % 0)
    sources: list[Source] = []
    with contextlib.ExitStack() as files:
        for offset in range(0, count, RECORDS_PER_BATCH):
            if not sources or sources[-1].size > SEGMENT_BYTES - 100_000:
                sources.append(Source(offset, 0))
                name = names.file_name(offset, names.LOG)
                file = files.enter_context(open(folder / name, "wb", buffering=1 << 20))
            for number, place in enumerate(places, offset):
                body[place : place + key_bytes] = KEY % (number % keys)
            batch = assemble(header._replace(base_offset=offset), body)
            file.write(batch)
            sources[-1] = sources[-1]._replace(size=sources[-1].size + len(batch))
    return sources


def run_compaction(folder: str, sources: list[Source], buffer_bytes: int) -> tuple[Summary, list[Replaced]]:
    end_offset = sources[-1].base_offset + 10**9
    job = Job(
        folder=folder,
        groups=tuple((source,) for source in sources),
        end_offset=end_offset,
        now_ms=int(time.time() * 1000),
        delete_retention_ms=86_400_000,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        dedupe_bytes=int(buffer_bytes * 0.9),
    )
    reports: list[Replaced] = []

    async def work(runtime: Runtime) -> Summary:
        return await runtime.tasks.in_child(compact, job, report=reports.append)

    return run(work), reports


def show(summary: Summary, buffer_bytes: int) -> None:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"compacted {summary.records_before:,} records to {summary.records_after:,} in {summary.duration_s:.1f} s:"
        f" {usage.ru_utime + usage.ru_stime:.1f} s of CPU,"
        f" {usage.ru_maxrss / 1024:.0f} MiB of memory at most (of which {buffer_bytes >> 20} MiB may be for keys),"
        f" {summary.bytes_read / 1e9:.2f} GB read, {summary.bytes_written / 1e9:.2f} GB written",
        flush=True,
    )


def count_keys(folder: str, reports: list[Replaced]) -> int:
    """How many keys the log holds now; a key that it holds twice stops the count."""
    disk = RealDisk(Features.detect())
    replaced = {base for report in reports for base in report.old}
    seen = bytearray()
    count = 0
    for name in disk.list(folder):
        is_new = name.endswith(names.LOG + names.CLEANED)
        base = names.offset_of(name, names.LOG)
        if not is_new and (base is None or base in replaced):
            continue
        file = disk.open(f"{folder}/{name}")
        for found, batch in checked_batches(file, 0, file.size(), read_waiting):
            if not found.header.count:
                continue
            body = bytes(records_of(batch, found.header))
            for piece in body.split(b"customer-")[1:]:
                number = int(piece[:11])
                if number >= len(seen):
                    seen.extend(bytes(number - len(seen) + 1_000_000))
                if seen[number]:
                    raise SystemExit(f"key {number} is there twice")
                seen[number] = 1
                count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
