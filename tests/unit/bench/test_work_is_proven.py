"""A run whose work was not done has no numbers: a broker that refuses everything must not look fast."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import raw_load
from bench.measure import WorkNotDone
from bench.server import MoldauServer
from bench.topics import expect_messages, fresh_topic

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="It reads the kernel's CPU clocks."
)


def test_messages_that_the_broker_refuses_give_no_reading(tmp_path: Path) -> None:
    with (
        MoldauServer(tmp_path, {"message.max.bytes": 500}) as server,
        pytest.raises(WorkNotDone, match="0 messages"),
    ):
        list(raw_load.small_produce(server, 20))


def test_what_was_stored_is_counted(tmp_path: Path) -> None:
    with MoldauServer(tmp_path) as server:
        assert [reading.unit for reading in raw_load.small_produce(server, 20)] == ["us", "us"]
        assert len(list(raw_load.small_fetches(server, 20))) == 2
        with (
            fresh_topic(server) as topic,
            pytest.raises(WorkNotDone, match="0 messages are stored, 1 were sent"),
        ):
            expect_messages(server, topic, 1)
