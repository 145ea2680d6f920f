"""`python -m bench.opening`: how long a broker's logs take to open, after a clean stop and after kill -9.

The data folder is made on the spot. Closed segments are files with holes, so that 10 GB cost no room and no time:
opening does not look into them, and would find no batch there if it did. Printed are the seconds and the bytes that
were read. With --dirty the folder is left as a killed broker leaves it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator

from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.log import names
from moldau.log.host import LogHost, Owner
from moldau.log.manager import LogManager
from moldau.records.record import Record, build_batch
from moldau.runtime.ports import Runtime
from moldau.runtime.real import run

SEGMENTS = 10
TOPIC = "opened"


def manager_of(runtime: Runtime, folder: str) -> LogManager:
    config = topic_config(BrokerConfig.parse({}), {})
    return LogManager(runtime, [folder], Owner("bench", 1, os.getpid()), LogHost(lambda topic: config))


async def fill(runtime: Runtime, folder: str, partitions: int, total_bytes: int, clean: bool) -> None:
    """Logs of ten closed segments and an active one with a batch each; the closed ones are then made long."""
    manager = manager_of(runtime, folder)
    await manager.open()
    now_ms = runtime.clock.wall_ms()
    for index in range(partitions):
        log = manager.create(TopicPartition(TOPIC, index), uuid.UUID(int=1))
        for _ in range(SEGMENTS + 1):
            batch = bytearray(build_batch([Record(0, now_ms, None, b"x" * 1000)]))
            log.append(memoryview(batch), 0, len(batch), 0, now_ms)
            log.roll(now_ms)
        batch = bytearray(build_batch([Record(0, now_ms, None, b"x" * 1000)]))
        log.append(memoryview(batch), 0, len(batch), 0, now_ms)
        await log.flush()
    if clean:
        await manager.close()
    else:
        await manager.write_checkpoints()
        manager.release()
    size = total_bytes // partitions // SEGMENTS
    for index in range(partitions):
        for base_offset in range(SEGMENTS):
            os.truncate(f"{folder}/{TOPIC}-{index}/{names.file_name(base_offset, names.LOG)}", size)


async def measure(runtime: Runtime, folder: str) -> tuple[float, float, int, int]:
    """Seconds, CPU seconds, bytes read, logs."""
    manager = manager_of(runtime, folder)
    started_s, cpu_s, read = time.monotonic(), time.process_time(), bytes_read()
    await manager.open()
    taken = time.monotonic() - started_s, time.process_time() - cpu_s, bytes_read() - read, len(manager.logs)
    manager.release()
    return taken


@contextlib.contextmanager
def without_syncs() -> Iterator[None]:
    """Making the folder is not what is measured, and nothing is lost with it."""
    fsync = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = fsync


def bytes_read() -> int:
    with open("/proc/self/io") as counters:
        return int(counters.readline().split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--gb", type=float, default=10.0)
    parser.add_argument("--dirty", action="store_true", help="as after kill -9")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="moldau-opening-")
    try:
        total_bytes = int(options.gb * 1e9)
        with without_syncs():
            run(lambda runtime: fill(runtime, folder, options.partitions, total_bytes, not options.dirty))
        wall_s, cpu_s, read, logs = run(lambda runtime: measure(runtime, folder))
        how = "kill -9" if options.dirty else "a clean stop"
        print(
            f"{logs} partitions with {options.gb:g} GB after {how}: open in {wall_s:.2f} s"
            f" ({cpu_s:.2f} s of CPU), {read:,} bytes read"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
