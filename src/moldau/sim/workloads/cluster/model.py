"""What clients of a cluster may rely on, beside what `sim.model` says of every log.

- A topic with three replicas and `min.insync.replicas=2` loses nothing that was acknowledged with acks=all, or read,
  whatever happens to one broker after the other (`Ledger`, for which no end of a process excuses a loss).
- A topic with less (`WeakLedger`) may lose its end. Even so one leader epoch has one record at an offset, records are
  those that were sent, and those of idempotent producers are there at most once.

What must hold at every moment inside the cluster is in `oracle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moldau.records.record import Record
from moldau.sim.model import Ledger, LookUp, Sent, Visible


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
