"""A follower's fetch session on the leader's side: which of its partitions are worth a look.

A broker may follow thousands of partitions, of which nearly none have changed since its last fetch. Its session stands
at each of them (`Partition.end_watchers`, one for each follower) and hears what happens there; a fetch reads those that
are due, and costs nothing for the others. Due is what the follower has named, since its place there is new; what has
grown, or has another leader, high watermark or start; what an answer could not tell whole; and where the follower is
not in sync, so that each of its fetches counts.

Records that were sent are not sent again before the follower has said where it is: its next request may be on the way
to us already. Kafka's leaders look at all partitions of a session; KIP-227 is about the bytes on the wire only.

A throttled partition of a follower that is not in sync is held back while the leader's quota is exceeded (KIP-73,
`ReplicaManager.shouldLeaderThrottle`): nothing that happens there ends a wait, until there is room and it is due again.

A fetch looks at no more than `LOOKS_PER_FETCH_MAX` partitions, first at those with news, so that a follower with
thousands of them holds up nobody else; where news are left over it is answered at once, and asks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from moldau.replication.fetch_session import WantedPartition
from moldau.replication.long_polls import LongPoll, LongPolls
from moldau.replication.partition import Partition
from moldau.replication.throttle import Throttle

HIGH_WATERMARK_DELAY_S = 0.025
"""How long a follower that has everything waits to hear that it is committed. Kafka's tell it at once, which costs a
further fetch for each batch; nobody waits for it but readers of a follower, and a new leader's first readers."""
LOOKS_PER_FETCH_MAX = 500
"""Five to ten milliseconds of the loop."""


class FollowerSession:
    __slots__ = (
        "_is_closed",
        "_long_polls",
        "_places",
        "_throttle",
        "due",
        "fetched_s",
        "held_back",
        "news",
        "poll",
        "replica",
    )

    def __init__(self, replica: int, long_polls: LongPolls, throttle: Throttle, now_s: float) -> None:
        self.replica = replica
        self.fetched_s = now_s
        """When it last asked: where it had everything, it had everything then."""
        self.due: dict[WantedPartition, None] = {}
        self.news: dict[WantedPartition, None] = {}
        """Of those, the ones that were not looked at since they became so."""
        self.held_back: dict[WantedPartition, None] = {}
        """Throttled ones that are due when there is room."""
        self.poll: LongPoll | None = None
        """Its fetch that waits."""
        self._is_closed = False
        self._long_polls = long_polls
        self._throttle = throttle
        self._places: dict[WantedPartition, FollowedPlace] = {}

    @property
    def count(self) -> int:
        """Partitions that could be read."""
        return len(self._places)

    def name(self, wanted: WantedPartition) -> None:
        """The follower says where it is."""
        place = self._places.get(wanted)
        if place is not None:
            place.is_silent = False
        self.held_back.pop(wanted, None)
        self.due[wanted] = self.news[wanted] = None

    def forget(self, wanted: WantedPartition) -> None:
        self._settle(wanted)
        self.held_back.pop(wanted, None)
        place = self._places.pop(wanted, None)
        if place is not None:
            place.leave()

    def to_look_at(self, earlier: Iterable[WantedPartition] = ()) -> list[WantedPartition]:
        """The partitions that a fetch reads: those of its `earlier` look that are due still, those with news, then
        the others in turn."""
        chosen = {wanted: None for wanted in earlier if wanted in self.due}
        for wanted in chain(self.news, self.due):
            if len(chosen) >= LOOKS_PER_FETCH_MAX:
                break
            chosen[wanted] = None
        for wanted in chosen:
            self._settle(wanted)
        self.due |= chosen
        return list(chosen)

    def _settle(self, wanted: WantedPartition) -> None:
        self.due.pop(wanted, None)
        self.news.pop(wanted, None)

    def watch(self, partition: Partition, wanted: WantedPartition) -> None:
        """It was read: hear from now on what happens there."""
        if self._is_closed:  # a later session of the same follower has taken its place
            return
        place = self._places.get(wanted)
        if place is None or place.partition is not partition:
            if place is not None:
                place.leave()
            place = self._places[wanted] = FollowedPlace(self, partition, wanted)
        partition.end_watchers[self.replica] = place

    def hold_back(self, wanted: WantedPartition) -> None:
        """It is throttled, and there is no room: it is not looked at before there is."""
        if not self._is_closed:
            self._settle(wanted)
            self.held_back[wanted] = None
            self._places[wanted].is_silent = True
            self._throttle.when_room(self)

    def on_room(self) -> None:
        """The quota has room again, or what is throttled has changed."""
        for wanted in self.held_back:
            self._places[wanted].is_silent = False
        self.due |= self.held_back
        self.news |= self.held_back
        self.held_back = {}
        if self.poll is not None and not self.poll.is_done:
            self.poll.has_news = True
            self._long_polls.wake(self.poll)

    def answered(self, wanted: WantedPartition, *, is_well: bool, has_records: bool) -> None:
        """What was read of a partition has been answered. Not well: an error, or histories that part."""
        place = self._places.get(wanted)
        if place is None or not is_well:
            return
        if has_records:
            place.is_silent = True
            self._settle(wanted)
        elif place.is_quiet:
            self._settle(wanted)

    def ask_again(self) -> None:
        """Have the follower fetch anew where that may change something: it may be let into in-sync sets by now."""
        self.news |= self.due
        if self.due and self.poll is not None and not self.poll.is_done:
            self._long_polls.wake(self.poll)

    def close(self) -> None:
        self._is_closed = True
        self.held_back.clear()
        self._throttle.leave(self)
        for place in self._places.values():
            place.leave()
        self._places.clear()

    def note(self, wanted: WantedPartition, added_bytes: int) -> None:
        """There is more to read, or all is different (0)."""
        self.due[wanted] = self.news[wanted] = None
        poll = self.poll
        if poll is not None and not poll.is_done:
            poll.missing_bytes -= added_bytes
            poll.has_news = True
            if poll.missing_bytes <= 0 or not added_bytes:
                self._long_polls.wake(poll)

    def note_later(self, wanted: WantedPartition) -> None:
        """There is something to tell that can wait for a moment."""
        self.due[wanted] = None
        poll = self.poll
        if poll is not None and not poll.is_done and not poll.has_news:
            poll.has_news = True
            self._long_polls.hasten(poll, HIGH_WATERMARK_DELAY_S)


class FollowedPlace:
    """One partition of a follower's session: an `EndWatcher`."""

    __slots__ = ("_session", "_wanted", "is_silent", "partition")

    def __init__(self, session: FollowerSession, partition: Partition, wanted: WantedPartition) -> None:
        self._session = session
        self._wanted = wanted
        self.partition = partition
        self.is_silent = False
        """The follower was sent records, and has not said where it is since, or it is held back."""

    @property
    def fetched_s(self) -> float:
        return self._session.fetched_s

    @property
    def is_quiet(self) -> bool:
        """Whether the follower has everything, knows everything, and is in sync: the next fetch changes nothing."""
        partition, wanted = self.partition, self._wanted
        leader = partition.leader
        return (
            leader is not None
            and wanted.fetch_offset >= partition.log.next_offset
            and wanted.sent_high_watermark >= partition.high_watermark
            and wanted.sent_log_start_offset == partition.log.log_start_offset
            and self._session.replica in leader.state.isr
        )

    def on_growth(self, added_bytes: int) -> None:
        if not self.is_silent:
            self._session.note(self._wanted, added_bytes)

    def on_change(self) -> None:
        self.is_silent = False
        self._session.held_back.pop(self._wanted, None)
        self._session.note(self._wanted, 0)

    def on_news(self) -> None:
        if not self.is_silent:
            self._session.note_later(self._wanted)

    def on_out_of_sync(self) -> None:
        if not self.is_silent:
            self._session.due[self._wanted] = None

    def leave(self) -> None:
        watchers, replica = self.partition.end_watchers, self._session.replica
        if watchers.get(replica) is self:
            del watchers[replica]
