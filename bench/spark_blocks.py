"""The Spark source's block reader alone, without Spark: rows a second, and CPU of the reading process a row.

    python -m bench.spark_blocks [--on kafka] [--rows N]

For each size of records and codec a topic is filled with batches of a producer's default size, and read by the compiled
decoder and by the plain one. `measure` is for `make bench-spark`, which puts Spark around it.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from bench.raw import RawConnection, frame, nested, produce_request, request_class
from bench.server import MoldauServer, Server
from moldau.records.compression import CODEC_BY_NAME
from moldau.records.record import Record, build_batch
from moldau.spark.blocks.settings import ReadSettings, Split

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
BATCH_BYTES = 16 * 1024
"""`batch.size` of Kafka's producer."""
TIMESTAMP_MS = 1_767_225_600_000
IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """One read of a whole topic."""

    rows: int
    bytes: int
    seconds: float
    cpu_s: float

    @property
    def rows_s(self) -> float:
        return self.rows / self.seconds

    @property
    def cpu_ns_row(self) -> float:
        return self.cpu_s / self.rows * 1e9


def values(size: int, count: int, seed: int = 1) -> list[bytes]:
    """Records as applications write them: text that compresses to about a third."""
    draw = random.Random(seed)
    words = [f"word{draw.randrange(10**6):06d}" for _ in range(2000)]
    found = []
    for number in range(count):
        text = f'{{"id":{number},"user":"{draw.choice(words)}","payload":"'
        while len(text) < size - 2:
            text += draw.choice(words) + (" " if draw.random() < 0.5 else f"{draw.randrange(10**6)}")
        found.append((text[: size - 2] + '"}').encode())
    return found


def fill(bootstrap: str, topic: str, size: int, codec: str, rows: int, batch_bytes: int = BATCH_BYTES) -> int:
    """Append at least `rows` records of a size; how many there are then."""
    per_batch = max(1, batch_bytes // (size + 12))
    records = [
        Record(number, TIMESTAMP_MS + number, b"%016d" % number, value)
        for number, value in enumerate(values(size, per_batch))
    ]
    batch = build_batch(records, codec=CODEC_BY_NAME[codec])
    batches = -(-rows // per_batch)
    with RawConnection(bootstrap) as connection:
        _create_topic(connection, topic)
        request = frame(produce_request(topic, 0, batch))
        for number in range(batches + IN_FLIGHT):
            if number < batches:
                connection.send(request)
            if number >= IN_FLIGHT:
                connection.receive()
    return batches * per_batch


def _create_topic(connection: RawConnection, topic: str) -> None:
    """One that keeps everything: the records' time is long past."""
    cls = request_class(19, 5)
    topics = nested(cls, "topics")
    keep = nested(topics, "configs")(name="retention.ms", value="-1")
    answer = connection.ask(
        cls(
            topics=(
                topics(name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=(keep,)),
            ),
            timeout=datetime.timedelta(seconds=30),
            validate_only=False,
        )
    )
    if answer.topics[0].error_code:
        raise RuntimeError(f"{topic}: {answer.topics[0].error_code.name}")


def measure(
    bootstrap: str, topic: str, rows: int, columns: Sequence[str] = COLUMNS, decoder: str | None = None
) -> Measured:
    """Read the first partition of a topic from its start, by the usual decoder or by a named one, `fast` or `plain`."""
    import pyarrow as pa

    from moldau.spark.blocks.columns import TYPES
    from moldau.spark.blocks.read import read_split

    settings = ReadSettings(bootstrap, pa.schema([(name, TYPES[name]) for name in columns]))
    decode = None if decoder is None else import_module(f"moldau.spark.blocks.decode_{decoder}").decode
    began, began_cpu = time.perf_counter(), time.process_time()
    counted = size = 0
    for batch in read_split(settings, Split(topic, 0, 0, rows), decode=decode):
        counted += batch.num_rows
        size += batch.nbytes
    measured = Measured(counted, size, time.perf_counter() - began, time.process_time() - began_cpu)
    if counted != rows:
        raise RuntimeError(f"{topic}: {counted} rows instead of {rows}")
    return measured


def best_of(
    repeats: int, bootstrap: str, topic: str, rows: int, decoder: str, columns: Sequence[str]
) -> Measured:
    """The quickest of some reads; the first one, which may compile, is not counted."""
    measure(bootstrap, topic, min(rows, 1000), columns, decoder)
    return min(
        (measure(bootstrap, topic, rows, columns, decoder) for _ in range(repeats)), key=lambda m: m.seconds
    )


def run(
    bootstrap: str, rows: int, repeats: int, batch_bytes: int
) -> Iterator[tuple[int, str, str, str, Measured]]:
    for size, codec in itertools.product((100, 1000), ("none", "lz4", "zstd")):
        topic = f"blocks-{size}-{codec}-{batch_bytes}"
        count = fill(bootstrap, topic, size, codec, rows if size == 100 else rows // 5, batch_bytes)
        for decoder, columns in (("fast", COLUMNS), ("fast", ("value",)), ("plain", COLUMNS)):
            measured = best_of(repeats, bootstrap, topic, count, decoder, columns)
            yield size, codec, decoder, "all" if columns is COLUMNS else "value", measured


def server_of(kind: str, folder: Path) -> Server:
    if kind == "moldau":
        return MoldauServer(folder)
    from bench.apache_kafka import KafkaServer

    return KafkaServer(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_blocks", description=__doc__)
    parser.add_argument("--on", choices=("moldau", "kafka"), default="moldau")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 B; a fifth of it of 1 KB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, server_of(options.on, Path(folder)) as server:
        print(f"{options.on}, batches of {options.batch_bytes} bytes")
        print("size codec  decoder columns   M rows/s  CPU ns/row")
        results = run(server.bootstrap_servers, options.rows, options.repeats, options.batch_bytes)
        for size, codec, decoder, columns, found in results:
            print(
                f"{size:4} {codec:6} {decoder:7} {columns:7} {found.rows_s / 1e6:9.2f} {found.cpu_ns_row:11.0f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
