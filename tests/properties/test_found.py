"""Sequences that once found a bug, as short as they became."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.records.compression import Codec
from properties.test_log_properties import LogOnSimulatedDisk

CONFIG = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "5000",
    "file.delete.delay.ms": "0",
    "index.interval.bytes": "0",
    "internal.segment.bytes": "300",
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "10000",
}


@pytest.fixture
def machine() -> Iterator[LogOnSimulatedDisk]:
    found = LogOnSimulatedDisk()
    yield found
    found.teardown()


def test_a_cut_that_failed_halfway_is_durable_when_it_is_asked_for_again(machine: LogOnSimulatedDisk) -> None:
    machine.start(seed=0, config=CONFIG, cold_rate=0.0, short_write_rate=0.0)
    machine.let_time_pass(seconds=0.5)
    machine.crash_while_recovering(changes=17)
    machine.append(age_ms=0, codec=Codec.NONE, pairs=[(b"a", None)], producer=None)
    machine.restart()
    machine.trouble_in_a_cut(count=1, kill=False, kind="write", path=".log", share=0.0)
    machine.crash_in_a_change(changes=0, share=0.0, what="truncate")


def test_a_time_is_found_after_a_segment_was_cut_off_whole(machine: LogOnSimulatedDisk) -> None:
    machine.start(seed=443, config=CONFIG, cold_rate=0.0, short_write_rate=0.0)
    machine.append(age_ms=24, codec=Codec.LZ4, pairs=[(None, None), (None, None)], producer=8)
    machine.roll()
    machine.enforce_retention()
    machine.disk_is_full(room=361, what="checkpoint")
    machine.crash_while_recovering(changes=4)
    machine.append(age_ms=-26, codec=Codec.SNAPPY, pairs=[(b"a", b"b")] * 6, producer=8)
    machine.truncate(share=0.21)
    machine.look_up_a_timestamp(age_ms=2691)
