"""Where a broker spends its time: `moldau up` under cProfile, with a load of one kind.

cProfile makes every Python call dearer, so the shares tell more than the seconds.
"""

from __future__ import annotations

import pstats
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench import raw_load
from bench.measure import MB, Reading
from bench.server import MoldauServer, Server

LINES = 30
Load = Callable[[Server], Iterable[Reading]]


def _groups(name: str, count: int) -> Load:
    def load(server: Server) -> Iterable[Reading]:
        from bench import groups  # raises the limit of open files, which not every system has

        readings: Iterable[Reading] = getattr(groups, name)(server, count)
        return readings

    return load


LOADS: dict[str, Load] = {
    "produce": lambda server: raw_load.small_produce(server, 40_000),
    "fetch": lambda server: raw_load.small_fetches(server, 40_000),
    "large": lambda server: raw_load.large_requests(server, 1000 * MB),
    "classic-group": _groups("classic_group", 1000),
    "consumer-group": _groups("consumer_group", 1000),
    "many-groups": _groups("many_groups", 5000),
}


class ProfiledServer(MoldauServer):
    @property
    def profile(self) -> Path:
        return self.folder / "profile"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "cProfile", "-o", str(self.profile), *super().command()]


def print_profile(load: str) -> None:
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        with ProfiledServer(Path(folder)) as server:
            for reading in LOADS[load](server):
                print(f"{reading.name}: {reading.value:.3g} {reading.unit} under the profiler")
        pstats.Stats(str(server.profile)).strip_dirs().sort_stats("tottime").print_stats(LINES)
