"""Brokers as real processes: made by a test, ended with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.bench.apache_kafka import KafkaServer
from moldau.bench.server import MoldauServer, Server


@pytest.fixture
def new_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Make a broker of the target's kind, not yet started, in a folder of its own."""
    wanted = request.config.getoption("--target")
    if wanted not in ("moldau", "kafka"):
        pytest.skip("This test starts and kills brokers of its own: it takes no address as --target.")
    if wanted == "kafka":
        request.getfixturevalue("requires_kafka")
    kind = MoldauServer if wanted == "moldau" else KafkaServer
    made: list[Server] = []
    numbers = itertools.count(1)

    def make(**settings: object) -> Server:
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        server = kind(tmp_path / f"broker-{next(numbers)}", dotted)
        made.append(server)
        return server

    yield make
    for server in made:
        server.kill()
