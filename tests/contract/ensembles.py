"""A ZooKeeper ensemble for tests; where it cannot be had they are left out with the reason, or fail in CI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.cli.zookeeper_ensemble import Ensemble
from moldau.runtime.real.free_ports import free_port
from moldau.runtime.real.java import Unavailable
from needs import missing


@contextmanager
def running_ensemble(
    folder: Path, nodes: int = 3, settings: dict[str, object] | None = None
) -> Iterator[Ensemble]:
    ensemble = Ensemble(folder, [free_port() for _ in range(nodes)], settings)
    try:
        ensemble.start()
    except Unavailable as reason:
        missing(str(reason))
    try:
        yield ensemble
    finally:
        ensemble.stop()
