"""What the simulation's readers take for damage: they must say so, whatever the bytes are."""

from __future__ import annotations

import pytest

from moldau.records.record import Record, build_batch
from moldau.sim.fetching import Damaged, unfold

EPOCH = 3
BATCH = build_batch([Record(0, 1, b"key", b"value")], leader_epoch=EPOCH)


def test_whole_batches_are_read() -> None:
    ((header, records),) = unfold(BATCH, 0)
    assert (header.leader_epoch, [record.value for record in records]) == (EPOCH, [b"value"])


@pytest.mark.parametrize("tail", [bytes(70), bytes(5), b"\xff" * 70, BATCH[:-1], BATCH[:61]], ids=len)
def test_what_is_no_whole_batch_is_damage(tail: bytes) -> None:
    with pytest.raises(Damaged):
        list(unfold(BATCH + tail, 0))
