"""`python -m bench.peers`: Moldau beside Redis Streams, NATS JetStream and RabbitMQ; writes it into docs/benchmarks.md.

python -m bench.peers            the whole of it: about ten minutes
python -m bench.peers --quick    small amounts, printed only
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.measure import Reading, Series, WorkNotDone
from bench.peers import page, work
from bench.peers.debian import install_missing
from bench.peers.moldau import MOLDAU
from bench.peers.nats_jetstream import NATS
from bench.peers.rabbitmq_stream import RABBITMQ
from bench.peers.redis_streams import REDIS
from bench.runner import OtherProcesses
from bench.server import StartFailed
from moldau.runtime.real.java import Unavailable

PEERS = (MOLDAU, REDIS, NATS, RABBITMQ)
RUNS = 3
Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="small amounts: a minute")
    parser.add_argument("--docs", type=Path, help="where benchmarks.md is: docs, or with --quick nowhere")
    options = parser.parse_args(arguments)
    docs = options.docs or (None if options.quick else Path("docs"))
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {what}", file=sys.stderr, flush=True)

    amounts, runs = (work.QUICK, 1) if options.quick else (work.FULL, RUNS)
    others = OtherProcesses()
    try:
        install_missing()
        with tempfile.TemporaryDirectory(prefix="moldau-peers-") as folder:
            every = measure(amounts, runs, Path(folder), say)
    except (Unavailable, StartFailed, WorkNotDone) as problem:
        print(problem, file=sys.stderr)
        return 1
    names = [f"{peer.name} {peer.version()}" for peer in PEERS]
    for series in every.values():
        series.values = {name: series.values[peer.name] for name, peer in zip(names, PEERS, strict=True)}
    text = page.section(names, [peer.client_name for peer in PEERS], every, runs, others.share())
    if docs is None:
        print(text)
    else:
        file = docs / "benchmarks.md"
        file.write_text(page.with_section(file.read_text(), text))
        say(f"wrote the section into {file}")
    return 0


def measure(amounts: work.Amounts, runs: int, folder: Path, say: Say) -> dict[str, Series]:
    every: dict[str, Series] = {}

    def add(name: str, readings: Iterable[Reading]) -> None:
        for reading in readings:
            series = every.setdefault(reading.name, Series(reading.unit, reading.more_is_better))
            series.values.setdefault(name, []).append(reading.value)

    for peer in PEERS:
        say(f"kill -9 of {peer.name}")
        add(peer.name, work.survivors(peer, folder / f"{peer.name}-killed", amounts))
    for number in range(runs + 1):  # the first brings the programs into the page cache, and is not counted
        for peer in PEERS:
            say(f"start of {peer.name}, run {number} of {runs}")
            readings = list(work.start(peer, folder / f"{peer.name}-start-{number}"))
            if number:
                add(peer.name, readings)
    with contextlib.ExitStack() as stack:
        servers = {peer.name: stack.enter_context(peer.server(folder / peer.name)) for peer in PEERS}
        for number in range(runs + 1):
            for peer in PEERS:
                say(f"{peer.name}, run {number} of {runs}")
                readings = list(work.run(peer, servers[peer.name], f"run-{number}", amounts))
                if number:
                    add(peer.name, readings)
        for peer in PEERS:
            add(peer.name, work.memory(servers[peer.name]))
    return every


if __name__ == "__main__":
    sys.exit(main())
