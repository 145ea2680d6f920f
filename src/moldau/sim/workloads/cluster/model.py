"""What clients of a cluster may rely on, beside what `sim.model` says of every log.

- A topic with three replicas and `min.insync.replicas=2` loses nothing that was acknowledged with acks=all, or read,
  whatever happens to one broker after the other (`Ledger`, for which no end of a process excuses a loss).
- A topic with less (`WeakLedger`) may lose its end. Even so one leader epoch has one record at an offset, records are
  those that were sent, and those of idempotent producers are there at most once.
- A topic that allows unclean elections (`UncleanLedger`) loses nothing before there is one. Then it may lose what the
  elected one does not know to be committed; all that lies below its high watermark is there for ever as before.
- Of a topic whose first records are deleted (`TrimmedLedger`) what lies before the highest offset that anybody has
  asked for may be gone, and nothing else.
- A compacted topic (`CompactedLedger`) has the last record of every key; what else it has is where it was.

What must hold at every moment inside the cluster is in `oracle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moldau.records.record import Record
from moldau.sim.model import NO_LIMIT, Ledger, LookUp, Sent, Visible


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


@dataclass(slots=True)
class UncleanLedger(Ledger):
    limit: int = NO_LIMIT
    """From there on nothing is promised any more."""

    def on_unclean_election(self, high_watermark: int) -> None:
        """Somebody leads who may lack what was committed from its high watermark on."""
        self.limit = min(self.limit, high_watermark)
        self.is_flushed = False  # a producer may find its sequence forgotten
        for known in self.records[self.limit :]:
            if known is not None:
                self.places.pop(known.value, None)
                self.acknowledged.pop(known.value, None)
        del self.records[self.limit :]

    def stands(self, life: int, offset: int, how: str) -> bool:
        return offset < self.limit

    def limit_since(self, life: int) -> int:
        return self.limit


@dataclass(slots=True)
class TrimmedLedger(Ledger):
    def on_asked_to_begin_at(self, offset: int) -> None:
        self.first_offset = max(self.first_offset, offset)

    def on_look_up(self, look_up: LookUp) -> None:
        pass


@dataclass(slots=True)
class CompactedLedger(Ledger):
    def on_look_up(self, look_up: LookUp) -> None:
        pass
