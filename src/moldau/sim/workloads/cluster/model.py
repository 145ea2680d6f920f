"""What clients of a cluster may rely on, beside what `sim.model` says of every log.

- A topic with three replicas and `min.insync.replicas=2` loses nothing that was acknowledged with acks=all, or read,
  whatever happens to one broker after the other (`Ledger`, for which no end of a process excuses a loss).
- A topic with less (`WeakLedger`) may lose its end. Even so one leader epoch has one record at an offset, records are
  those that were sent, and those of idempotent producers are there at most once.
- In one leader epoch one broker appends (`LeaderBook`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.records.record import Record
from moldau.sim.model import Ledger, LookUp, Model, Sent, Visible


@dataclass(slots=True)
class WeakLedger(Ledger):
    def on_acknowledged(self, life: int, base_offset: int, batch: Sequence[Sent]) -> None:
        pass

    def on_read(self, life: int, reader: str, leader_epoch: int, record: Record) -> None:
        if self.check_genuine(record):
            self.check_epoch(leader_epoch, record)

    def on_look_up(self, look_up: LookUp) -> None:
        pass

    def check_visible(self, before: Visible, high_watermark: int) -> None:
        pass

    def check_stable(self, before: Visible, last_stable_offset: int, high_watermark: int) -> None:
        if last_stable_offset > high_watermark:
            self.fail(f"a last stable offset up to {high_watermark}", str(last_stable_offset))


class LeaderBook:
    """Who has appended to which partition in which leader epoch."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._leaders: dict[tuple[UUID, int, int], int] = {}

    def on_append(self, broker_id: int, place: TopicPartition, topic_id: UUID, leader_epoch: int) -> None:
        leader = self._leaders.setdefault((topic_id, place.partition, leader_epoch), broker_id)
        if leader != broker_id:
            self._model.fail(
                place,
                f"one leader in epoch {leader_epoch}, which is broker {leader}",
                f"broker {broker_id} appends in it too",
            )
