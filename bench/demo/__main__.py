"""`python -m bench.demo`, which `make demo` calls: everything is started, shown until Ctrl-C, and stopped.

The exit code is 0 where it ran until it was stopped, and 1 where a part could not start or has ended by itself. Data
are in a temporary folder, which is removed at the end, or in `--data`.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.demo.parts import EXAMPLE, Failed, Parts
from bench.demo.view import Drawn, Lines
from moldau.cli.output import wants_drawing
from moldau.cli.pipeline import StopSignals
from moldau.runtime.real.java import Unavailable
from moldau.spark.session import require_spark

LOOK_S = 1.0
RATE = 50.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make demo", description="Brokers, a website and its pipeline, until Ctrl-C."
    )
    parser.add_argument("--rate", type=float, default=RATE, help=f"page views a second (default: {RATE:g})")
    parser.add_argument("--data", type=Path, help="a new folder for all data, which is kept")
    parser.add_argument("--picture", type=Path, help="write the last drawing there, as SVG")
    options = parser.parse_args(arguments)
    try:
        require_spark()
        if not EXAMPLE.is_dir():
            raise Unavailable(f"The demo runs from Moldau's source tree; there is no {EXAMPLE}.")
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 1
    with Signals() as signals, folder_of(options.data) as folder:
        return run(folder, options.rate, options.picture, signals)


class Signals(StopSignals):
    """Closing the terminal stops it, too."""

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(folder: Path, rate: float, picture: Path | None, signals: StopSignals) -> int:
    parts = Parts(folder, signals.stopping)
    view = (Drawn if wants_drawing() else Lines)(
        "Moldau: three brokers, a website's page views, and a pipeline on Spark",
        f"Ctrl-C stops all of it. Logs, topics and the lake are in {folder}",
    )
    code = 0
    try:
        show(parts, view, rate, signals.stopping)
    except Failed as reason:
        view.say(str(reason))
        code = 1
    finally:
        view.close()
        print("stopping; Ctrl-C once more ends it at once", flush=True)
        parts.stop(signals.at_once)
    if picture is not None and isinstance(view, Drawn):
        view.save(picture)
    print("stopped: no process is left", flush=True)
    return code


def show(parts: Parts, view: Drawn | Lines, rate: float, stopping: threading.Event) -> None:
    """Until it is to stop, or until a part ends by itself."""
    from bench.demo.facts import Asking

    view.say("starting three brokers")
    parts.start_brokers()
    if stopping.is_set():
        return
    view.say(f"they are at {parts.bootstrap_servers}; an hour of page views, then {rate:g} a second")
    parts.start_pipeline()
    parts.start_history()
    asking = Asking(parts.bootstrap_servers, parts.project)
    try:
        while not stopping.wait(LOOK_S):
            parts.look_after(rate)
            view.show(asking.look(time.monotonic()))
    finally:
        asking.close()


@contextlib.contextmanager
def folder_of(data: Path | None) -> Iterator[Path]:
    if data is None:
        with tempfile.TemporaryDirectory(prefix="moldau-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    data.mkdir(parents=True)
    yield data.resolve()


if __name__ == "__main__":
    sys.exit(main())
