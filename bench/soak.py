"""`python -m bench.soak --minutes N`: a long run against one broker process (`make soak MINUTES=n`).

Mixed load with small segments, retention and compaction. In the first half the broker is killed and stopped on a
seeded schedule, sometimes again while it recovers; the second half is calm, and memory and open files must stay flat.
At the end the model agrees with what is stored (`soak_model`), the data folder verifies without damage, and no process
is left. The exit code is 0 where all of that holds.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.raw import RawConnection, fetch_request, nested, request_class
from bench.server import MoldauServer, StartFailed
from bench.soak_clients import (
    Client,
    FollowingReader,
    GroupReader,
    IdempotentWriter,
    RawWriter,
    Reader,
)
from bench.soak_model import TOPICS, Ledger, Stored, Topic, check_partition
from bench.soak_report import Sample, Summary, flatness, text, write_page
from moldau.log.inspect.findings import Seen, Severity
from moldau.log.inspect.folder import verify_folder
from moldau.records.batch import crc_of, read_header
from moldau.records.record import Record, read_records
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

SETTINGS = {
    "moldau.http.port": "-1",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
SAMPLE_EVERY_S = 1.0
LIFE_S = (2.0, 12.0)
LIFE_WHILE_STARTING_S = (0.05, 0.5)
KILLED_AGAIN_SHARE = 0.25
STOPPED_SHARE = 0.25
SETTLE_S = 6.0
"""For retention and compaction to come to an end after the last write: a few of their intervals."""
LEFT_BEHIND_PATIENCE_S = 10.0
ADMIN_TIMEOUT_S = 30
FETCH_BYTES = 1 << 20
READ_ATTEMPTS = 10
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 7
EARLIEST, LATEST = -2, -1


class Soak:
    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self._seconds = seconds
        self._seed = seed
        self._random = random.Random(seed)
        self._server = MoldauServer(folder, SETTINGS)
        self._ledger = Ledger()
        self._clients: list[Client] = []
        self._samples: list[Sample] = []
        self._ends_s: list[float] = []
        self._kills = self._stops = 0
        self._begun_s = time.monotonic()

    def run(self) -> Summary:
        try:
            self._server.start()
            self._create_topics()
            self._start_clients()
            self._trouble(self._seconds / 2)
            calm_from_s = self._now_s()
            self._live_until(self._seconds)
            self._end_clients()
            self._live_until(self._now_s() + SETTLE_S)
            judged = flatness(self._samples, calm_from_s)
            self._check_stored()
            self._stop_for_good()
        finally:
            self._server.kill()
        read = sum(client.count for client in self._clients if isinstance(client, Reader))
        problems = [*self._ledger.problems, *(judged.problems if judged else [])]
        if not self._ledger.count or not read:
            problems.append("nothing was written, or nothing read")
        return Summary(
            self._seed,
            round(self._seconds / 60, 2),
            self._kills,
            self._stops,
            self._ledger.count,
            read,
            self._samples,
            self._ends_s,
            calm_from_s,
            judged,
            problems,
        )

    def _now_s(self) -> float:
        return time.monotonic() - self._begun_s

    # The load

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap_servers, "log_level": 0})
        wanted = [NewTopic(topic.name, topic.partitions, 1, config=topic.configs) for topic in TOPICS]
        for made in admin.create_topics(wanted).values():
            made.result(ADMIN_TIMEOUT_S)

    def _start_clients(self) -> None:
        bootstrap, ledger = self._server.bootstrap_servers, self._ledger
        for topic in TOPICS:
            seeds = self._random.getrandbits(32), self._random.getrandbits(32)
            self._clients += [
                IdempotentWriter(f"idempotent-{topic.name}", bootstrap, ledger, topic, seeds[0]),
                RawWriter(f"raw-{topic.name}", bootstrap, ledger, topic, seeds[1]),
            ]
        self._clients += [
            FollowingReader("soak-follower", bootstrap, ledger, TOPICS),
            GroupReader("soak-group", bootstrap, ledger, TOPICS),
        ]
        for client in self._clients:
            client.start()

    def _end_clients(self) -> None:
        writers = [client for client in self._clients if not isinstance(client, Reader)]
        readers = [client for client in self._clients if isinstance(client, Reader)]
        for clients in (writers, readers):
            for client in clients:
                client.tell_to_end()
            for client in clients:
                client.join()

    # The broker's lives

    def _trouble(self, until_s: float) -> None:
        """Lives that end badly, or by a stop, up to a time; the broker is up at the end."""
        while self._now_s() < until_s:
            self._live_until(self._now_s() + self._random.uniform(*LIFE_S))
            self._end_life()
            if self._random.random() < KILLED_AGAIN_SHARE:
                self._server.launch()
                self._live_until(self._now_s() + self._random.uniform(*LIFE_WHILE_STARTING_S))
                self._kill()
            self._server.start()

    def _end_life(self) -> None:
        if self._random.random() < STOPPED_SHARE:
            self._stops += 1
            self._ends_s.append(self._now_s())
            if not self._server.stop():
                self._ledger.fail(f"a stop was not clean: {self._server.output()}")
        else:
            self._kill()

    def _kill(self) -> None:
        self._kills += 1
        self._ends_s.append(self._now_s())
        session = self._server.pid
        self._server.kill()
        self._expect_nobody(session)

    def _live_until(self, until_s: float) -> None:
        """Sample memory and files; a broker that ends by itself is a failure."""
        while (left_s := until_s - self._now_s()) > 0:
            try:
                code = self._server.wait(min(SAMPLE_EVERY_S, left_s))
            except subprocess.TimeoutExpired:
                self._sample()
                continue
            self._ledger.fail(f"the broker ended by itself with code {code}: {self._server.output()}")
            self._server.start()

    def _sample(self) -> None:
        process = Path("/proc") / str(self._server.pid)
        try:
            status = (process / "status").read_text()
            files = len(os.listdir(process / "fd"))
        except OSError:  # it is just ending
            return
        rss = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")), None)
        if rss is not None:
            self._samples.append(Sample(self._now_s(), int(rss) * 1024, files))

    def _stop_for_good(self) -> None:
        session = self._server.pid
        if not self._server.stop():
            self._ledger.fail(f"the last stop was not clean: {self._server.output()}")
        self._expect_nobody(session)
        disk = RealDisk(Features.detect())
        for finding in verify_folder(disk, str(self._server.data), Seen(), records=True):
            if finding.severity is Severity.DAMAGE:
                self._ledger.fail(f"{finding.path} at {finding.position}: {finding.what}")
        disk.close()

    def _expect_nobody(self, session: int) -> None:
        """The broker's children end with it."""
        deadline_s = time.monotonic() + LEFT_BEHIND_PATIENCE_S
        while (left := list(_in_session(session))) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        if left:
            self._ledger.fail(f"processes are left behind: {left}")

    # The end

    def _check_stored(self) -> None:
        for topic in TOPICS:
            for partition in range(topic.partitions):
                try:
                    stored = read_stored(self._server.bootstrap_servers, topic, partition)
                except (OSError, ValueError) as problem:
                    self._ledger.fail(
                        f"{topic.name}-{partition} cannot be read: {problem}. {self._server.output()}"
                    )
                    continue
                lines = self._ledger.lines(topic.name, partition)
                for complaint in check_partition(topic, stored, lines, int(time.time() * 1000)):
                    self._ledger.fail(f"{topic.name}-{partition}: {complaint}")


def read_stored(bootstrap: str, topic: Topic, partition: int) -> Stored:
    """All of a partition, each batch whole and with a right checksum."""
    for _ in range(READ_ATTEMPTS):
        start, end = _bounds(bootstrap, topic, partition)
        stored = Stored(start, end, *_read_between(bootstrap, topic, partition, start, end))
        if _bounds(bootstrap, topic, partition) == (start, end):
            return stored  # else retention took something meanwhile
    raise ValueError("it does not come to rest")


def _bounds(bootstrap: str, topic: Topic, partition: int) -> tuple[int, int]:
    """Where the log begins and ends."""
    cls = request_class(LIST_OFFSETS, LIST_OFFSETS_VERSION)
    topics = nested(cls, "topics")
    partitions = nested(topics, "partitions")
    found = []
    with RawConnection(bootstrap) as connection:
        for timestamp in (EARLIEST, LATEST):
            asked = partitions(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
            request = cls(
                replica_id=-1, isolation_level=0, topics=(topics(name=topic.name, partitions=(asked,)),)
            )
            answer = connection.ask(request).topics[0].partitions[0]
            if answer.error_code:
                raise ValueError(f"ListOffsets gives error {answer.error_code}")
            found.append(int(answer.offset))
    return found[0], found[1]


def _read_between(
    bootstrap: str, topic: Topic, partition: int, start: int, end: int
) -> tuple[int, list[Record]]:
    """The bytes and the records; fewer where the log begins later by now."""
    offset, size = start, 0
    records: list[Record] = []
    with RawConnection(bootstrap) as connection:
        while offset < end:
            found = _fetch(connection, topic, partition, offset)
            if found.error_code or not found.records:
                break
            size += len(found.records)
            for batch in _batches(found.records):
                records += [record for record in read_records(batch) if record.offset >= offset]
                header = read_header(batch)
                offset = header.base_offset + header.last_offset_delta + 1
    return size, records


def _fetch(connection: RawConnection, topic: Topic, partition: int, offset: int) -> Any:
    request = fetch_request(topic.name, partition, offset, bytes_max=FETCH_BYTES, wait_ms=0, bytes_min=0)
    return connection.ask(request).responses[0].partitions[0]


def _batches(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        header = read_header(data, position)
        size = header.length + 12
        batch = data[position : position + size]
        if len(batch) < size or crc_of(batch, 0, size) != header.crc:
            raise ValueError(f"a batch at offset {header.base_offset} is cut off or has a wrong checksum")
        yield batch
        position += size


def _in_session(session: int) -> Iterator[int]:
    """The processes of a session that still run."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(entry.name)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="the schedule of kills (default: a new one)")
    parser.add_argument("--docs", type=Path, help="write soak.md and soak.png to this folder")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        print("The long run reads /proc: it runs on Linux only.", file=sys.stderr)
        return 1
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="moldau-soak-") as folder:
        try:
            summary = Soak(Path(folder), options.minutes * 60, seed).run()
        except StartFailed as problem:
            print(f"verdict: FAILED: {problem}", file=sys.stderr)
            return 1
    print("\n".join(text(summary)))
    if options.docs is not None:
        write_page(summary, options.docs)
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
