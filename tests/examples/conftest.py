"""A stage for each test: a broker process of its own, since examples have fixed names for topics and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.server import Server
from examples.stage import Stage


@pytest.fixture
def stage(new_server: Callable[..., Server], tmp_path: Path) -> Iterator[Stage]:
    server = new_server(offsets_topic_num_partitions=5, transaction_state_log_num_partitions=5)  # made sooner
    made = Stage(server.start(), tmp_path)
    yield made
    made.end()
