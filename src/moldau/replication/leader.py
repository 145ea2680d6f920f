"""What the leader of a partition knows and decides: its followers, the in-sync set, the high watermark. Pure.

It takes what happens (appended, flushed, a follower has fetched, the controller has answered, time has passed, another
state) and gives the high watermark and, where it wants another in-sync set, a wish for the controller. It lives for one
leader epoch; the next one begins with a new object. Kafka's `Partition` and `PartitionState`; KIP-497 (in-sync sets by
the controller), KIP-903 (broker epochs), KIP-966 (no progress below `min.insync.replicas`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.metadata.image import PartitionState
from moldau.replication.high_watermark import next_high_watermark

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1

GIVEN_BACK = frozenset({ErrorCode.operation_not_attempted, ErrorCode.ineligible_replica})
"""Answers of the controller after which the committed set is the one that counts."""
OUT_OF_DATE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_request,
        ErrorCode.invalid_update_version,
        ErrorCode.new_leader_elected,
    }
)
"""Answers after which this leader asks no more and waits for the state that it does not know yet. Until then both sets
count: which of them the controller has is not known."""


class InSyncWish(NamedTuple):
    """What the controller is asked for: an in-sync set, each member with the broker epoch in which it fetches."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Follower:
    """A follower as its leader sees it."""

    __slots__ = (
        "broker_epoch",
        "caught_up_s",
        "end_at_fetch",
        "fetched_s",
        "is_at_end",
        "log_start_offset",
        "next_offset",
    )

    def __init__(self, caught_up_s: float) -> None:
        self.next_offset = UNKNOWN_OFFSET
        """Up to where it has the log: it asks for what follows."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.caught_up_s = caught_up_s
        """When it last had all that the leader had."""
        self.fetched_s = caught_up_s
        self.end_at_fetch = UNKNOWN_OFFSET
        self.is_at_end = False
        """It has all that the leader has: it need not be heard of again before the log grows."""

    def note_growth(self, fetched_s: float) -> None:
        """The log is about to be ahead of it. `fetched_s`: when it last asked, for this partition or others."""
        if self.is_at_end:
            self.is_at_end = False
            self.caught_up_s = max(self.caught_up_s, fetched_s)

    def note_fetch(
        self, next_offset: int, log_start_offset: int, broker_epoch: int, end_offset: int, now_s: float
    ) -> None:
        self.is_at_end = next_offset >= end_offset
        if self.is_at_end:
            self.caught_up_s = max(self.caught_up_s, now_s)
        elif self.end_at_fetch >= 0 and next_offset >= self.end_at_fetch:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.next_offset = next_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_s = now_s
        self.end_at_fetch = end_offset


class PartitionLeader:
    __slots__ = (
        "_has_enough",
        "_is_asked",
        "_is_eligible",
        "_lag_max_s",
        "_node_id",
        "_proposed",
        "followers",
        "high_watermark",
        "is_alone",
        "leader_epoch",
        "local_offset",
        "min_insync_replicas",
        "start_offset",
        "state",
    )

    def __init__(
        self,
        node_id: int,
        state: PartitionState,
        *,
        next_offset: int,
        high_watermark: int,
        min_insync_replicas: int,
        now_s: float,
        lag_max_s: float,
        is_eligible: Callable[[int, int], bool],
        is_durable: bool = True,
    ) -> None:
        """`is_eligible(broker id, broker epoch)`: whether the cluster knows that broker as alive, in that epoch.
        `is_durable`: nothing of its log waits for the disk."""
        self._node_id = node_id
        self._lag_max_s = lag_max_s
        self._is_eligible = is_eligible
        self.leader_epoch = state.leader_epoch
        self.start_offset = next_offset
        """Where its epoch begins: readers are told no end of the log before the high watermark has come here
        (KIP-207)."""
        self.local_offset = next_offset if is_durable else high_watermark
        """Up to where its own log is as durable as the topic asks."""
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self.followers: dict[int, Follower] = {}
        self._proposed: tuple[int, ...] | None = None
        """The in-sync set that the controller is asked for and has not decided on."""
        self._is_asked = False
        self._take(state, now_s)
        self._advance(now_s)

    def _take(self, state: PartitionState, now_s: float) -> None:
        self.state = state
        before = self.followers
        self.followers = {
            replica: before.get(replica) or Follower(now_s if replica in state.isr else float("-inf"))
            for replica in state.replicas
            if replica != self._node_id
        }
        self._weigh()

    def _weigh(self) -> None:
        """What follows from the sets and the settings, so that an append needs not ask."""
        self._has_enough = len(self.state.isr) >= min(self.min_insync_replicas, len(self.state.replicas))
        self.is_alone = not self.followers

    @property
    def has_enough_in_sync(self) -> bool:
        """`min.insync.replicas`, which can ask for no more than there are replicas."""
        return self._has_enough

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The in-sync set as the controller has it or may have it: all of these count."""
        isr = self.state.isr
        if self._proposed is None:
            return isr
        return isr + tuple(replica for replica in self._proposed if replica not in isr)

    @property
    def knows_the_end(self) -> bool:
        """Whether the high watermark covers all that earlier leaders may have committed."""
        return self.high_watermark >= self.start_offset

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start among the living replicas, the leader's own included; unknown where a follower has
        not said. (`Partition.lowWatermarkIfLeader`)"""
        starts = [
            follower.log_start_offset for replica, follower in self.followers.items() if is_alive(replica)
        ]
        return min([log_start_offset, *starts])

    # What happens

    def appended(self, local_offset: int) -> int:
        """Its own log has grown; the high watermark, which moves at once only where nobody else counts."""
        self.local_offset = local_offset
        if self.is_alone and self._has_enough:
            self.high_watermark = local_offset
        return self.high_watermark

    def outgrows(self, replica: int, fetched_s: float) -> None:
        """Its log has grown, and a follower that had everything, when it last asked, has not any more."""
        follower = self.followers.get(replica)
        if follower is not None:
            follower.note_growth(fetched_s)

    def flushed(self, local_offset: int, now_s: float) -> int:
        """What waited for the disk counts now."""
        self.local_offset = max(self.local_offset, local_offset)
        return self._advance(now_s)

    def follower_fetched(
        self,
        replica: int,
        broker_epoch: int,
        next_offset: int,
        log_start_offset: int,
        end_offset: int,
        now_s: float,
    ) -> int:
        """A follower asks for what follows `next_offset`; `end_offset` is where the leader's log ends."""
        follower = self.followers[replica]
        follower.note_fetch(next_offset, log_start_offset, broker_epoch, end_offset, now_s)
        if replica not in self.state.isr and self._proposed is None and self._may_enter(replica, follower):
            self._propose((*self.state.isr, replica))
        return self._advance(now_s)

    def _may_enter(self, replica: int, follower: Follower) -> bool:
        return (
            follower.next_offset >= self.high_watermark
            and follower.next_offset >= self.start_offset
            and self._is_eligible(replica, follower.broker_epoch)
        )

    def tick(self, end_offset: int, now_s: float) -> int:
        """Time has passed: who has not kept up leaves the in-sync set, if the controller agrees."""
        if self._proposed is None:
            lagging = [replica for replica in self.state.isr if self._lags(replica, end_offset, now_s)]
            if lagging:
                self._propose(tuple(replica for replica in self.state.isr if replica not in lagging))
        return self._advance(now_s)

    def _lags(self, replica: int, end_offset: int, now_s: float) -> bool:
        follower = self.followers.get(replica)
        if follower is None:
            return False
        return follower.next_offset != end_offset and now_s - follower.caught_up_s > self._lag_max_s

    def changed(self, state: PartitionState, now_s: float) -> int:
        """The controller's newer decision for the same leader epoch."""
        if state.partition_epoch > self.state.partition_epoch:
            self._proposed = None
            self._take(state, now_s)
        return self._advance(now_s)

    def reconfigured(self, min_insync_replicas: int, now_s: float) -> int:
        self.min_insync_replicas = min_insync_replicas
        self._weigh()
        return self._advance(now_s)

    # The in-sync set

    def _propose(self, isr: tuple[int, ...]) -> None:
        self._proposed = isr
        self._is_asked = False

    @property
    def has_wish(self) -> bool:
        return self._proposed is not None and not self._is_asked

    def take_wish(self) -> InSyncWish:
        """To be sent to the controller now; what it answers comes back as `answered` or `unanswered`."""
        assert self._proposed is not None
        self._is_asked = True
        isr = tuple((replica, self._broker_epoch(replica)) for replica in self._proposed)
        return InSyncWish(self.leader_epoch, self.state.partition_epoch, isr)

    def _broker_epoch(self, replica: int) -> int:
        follower = self.followers.get(replica)
        return UNKNOWN_EPOCH if follower is None else follower.broker_epoch

    def answered(self, error: ErrorCode, state: PartitionState | None, now_s: float) -> int:
        """The controller has decided; `state` is what it has then, where it took the wish."""
        if state is not None:
            return self.changed(state, now_s)
        if error in GIVEN_BACK:
            self._proposed = None
        elif error not in OUT_OF_DATE:
            self.unanswered()
        return self._advance(now_s)

    def unanswered(self) -> None:
        """Whether the controller has taken the wish is not known: both sets count, and it is asked again."""
        self._is_asked = False

    # The high watermark

    def _advance(self, now_s: float) -> int:
        self.high_watermark = next_high_watermark(
            self.high_watermark,
            self.local_offset,
            self._counting_offsets(now_s),
            has_enough_in_sync=self._has_enough,
        )
        return self.high_watermark

    def _counting_offsets(self, now_s: float) -> list[int]:
        isr, proposed = self.state.isr, self._proposed or ()
        return [
            follower.next_offset
            for replica, follower in self.followers.items()
            if replica in isr or replica in proposed or self._is_about_to_enter(replica, follower, now_s)
        ]

    def _is_about_to_enter(self, replica: int, follower: Follower, now_s: float) -> bool:
        """It keeps up, so that waiting for it costs little; running on ahead would keep it out for ever."""
        return now_s - follower.caught_up_s <= self._lag_max_s and self._is_eligible(
            replica, follower.broker_epoch
        )
