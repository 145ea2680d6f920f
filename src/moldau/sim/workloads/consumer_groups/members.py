"""Members of a consumer group as clients are: one heartbeat joins, stays, changes the subscription and leaves.

A member takes what it is given, gives up what it is to after a while, and says what it has; after a failure it says
everything anew. When it is fenced it gives up all and joins again. Sometimes it leaves, changes what it wants, falls
silent past its session and goes on as if nothing had happened, or is killed. Static members come back in their place.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import Client, Disconnected
from moldau.sim.commits import OFFSET_COMMIT, OFFSET_COMMIT_VERSION, Fate, read_offsets
from moldau.sim.random import SimRandom
from moldau.sim.routes import group_coordinator
from moldau.sim.workloads.consumer_groups.model import Belief, ConsumerGroupModel

CONSUMER_GROUP_HEARTBEAT = 68
GROUP = "consumers"
SESSION_MS = 900
REBALANCE_MS = 1200
PAUSE_S = (0.02, 0.2)
AWAY_S = (0.0, 1.0)
JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
NOT_SAID_MS = -1
REGEX, REGEX_SINCE_VERSION = "work-.*", 1
ASSIGNORS = (None, "uniform", "range")

FENCED = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch, ErrorCode.fenced_instance_id)
AGAIN = (
    ErrorCode.unreleased_instance_id,
    ErrorCode.group_id_not_found,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class Interest:
    """What a member wants of the topics that there are, with the number of their partitions."""

    def __init__(self, topics: dict[str, int], random: SimRandom) -> None:
        self.topics = topics
        self.wanted: tuple[str, ...] = ()
        self.is_by_regex = False
        """It wants all of them, and says so by an expression."""
        self._random = random
        self.change()

    def change(self, *, may_be_regex: bool = False) -> None:
        names = list(self.topics)
        self.wanted = tuple(name for name in names if self._random.chance(0.7)) or (names[0],)
        self.is_by_regex = may_be_regex and self._random.chance(0.4)
        if self.is_by_regex:
            self.wanted = tuple(names)

    @property
    def all_places(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name, count in self.topics.items() for index in range(count)]


class ConsumerMember:
    def __init__(
        self,
        client: Client,
        model: ConsumerGroupModel,
        interest: Interest,
        *,
        is_static: bool = False,
        group_id: str = GROUP,
    ) -> None:
        random = client.random
        self._client = client
        self._group_id = group_id
        self._random = random
        self._model = model
        self._interest = interest
        self._instance_id = client.name if is_static else None
        self._assignor = ASSIGNORS[random.randrange(len(ASSIGNORS))]
        self._version = 1 if is_static else random.randrange(2)
        self._begin()

    def _begin(self) -> None:
        """Nothing is known of it yet, but of a static member who it is."""
        member_id = str(self._random.uuid())
        self.member_id = member_id if self._version else ""
        self.belief: Belief = self._model.on_member(self._instance_id or member_id)
        self.epoch = JOINING
        self._assigned: set[TopicPartition] = set()
        self._says_all = True
        self._reported: frozenset[TopicPartition] | None = None
        self._before: tuple[int, dict[TopicPartition, int]] = (JOINING, {})
        """An epoch before this one, and what was owned in it."""

    @property
    def _owned(self) -> dict[TopicPartition, int]:
        return self.belief.owned

    async def run(self) -> None:
        while not self._client.is_stopping:
            try:
                await self._client.runtime.tasks.sleep(self._random.between(*PAUSE_S))
                await self._turn()
            except Disconnected:
                self._says_all = True
                await self._client.pause()

    async def _turn(self) -> None:
        chance = self._random.random()
        self._reconcile()
        if self.epoch == JOINING:
            await self._beat()
        elif chance < 0.08 and not self._model.is_calm:
            await self._misbehave()
        elif chance < 0.12 and self._before[1]:
            await self._commit(*self._before)  # a thread that has not heard of the new epoch
        elif chance < 0.35 and self._owned:
            await self._commit(self.epoch, self._owned)
        elif chance < 0.42:
            await read_offsets(self._client, self._model.commits, self._group_id, self._interest.all_places)
        else:
            await self._beat()

    async def _commit(self, epoch: int, owned: dict[TopicPartition, int]) -> None:
        client, model, belief = self._client, self._model, self.belief
        await commit(client, model, belief, self.member_id, epoch, owned, self._group_id, self._instance_id)

    async def _misbehave(self) -> None:
        choice = self._random.randrange(4)
        if choice == 0:
            await self._leave()
        elif choice == 1:
            self._interest.change(may_be_regex=self._version >= REGEX_SINCE_VERSION)
            self._says_all = True
        elif choice == 2:
            await self._client.runtime.tasks.sleep(2 * SESSION_MS / 1000)
            if self._owned:  # it does not know yet that it may be out
                await self._commit(self.epoch, self._owned)
        elif self._instance_id is None:
            self._begin()  # the process was restarted, and nobody was told

    # ---- heartbeats -----------------------------------------------------------------------------------------

    async def report(self) -> None:
        """Give up what is to be given up, and send a heartbeat: for those who do something else meanwhile."""
        self._reconcile()
        try:
            await self._beat()
        except Disconnected:
            self._says_all = True

    async def _beat(self) -> None:
        sent_s = self._client.runtime.clock.monotonic()
        reported = frozenset(self._owned)
        answer = await self._ask(CONSUMER_GROUP_HEARTBEAT, self._version, self._heartbeat(reported))
        error = answer.error_code
        if error is ErrorCode.none:
            self._says_all = False
            self._reported = reported
            self.member_id = answer.member_id or self.member_id
            self._on_heard(sent_s, answer)
        elif error in FENCED:
            self._client.count("fenced")
            self._abandon()
        elif error in AGAIN:
            self._client.mistrust(group_coordinator(self._group_id))
            self._says_all = True
            await self._client.pause()
        else:
            self._client.model.fail(None, f"a heartbeat of {self.belief.name} to be answered", error.name)

    def _heartbeat(self, owned: frozenset[TopicPartition]) -> SimpleNamespace:
        full = self._says_all or self.epoch == JOINING
        by_regex = self._interest.is_by_regex
        return SimpleNamespace(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance_id,
            rack_id=None,
            rebalance_timeout=REBALANCE_MS if full else NOT_SAID_MS,
            subscribed_topic_names=(() if by_regex else self._interest.wanted) if full else None,
            subscribed_topic_regex=(REGEX if by_regex else "") if full else None,
            server_assignor=self._assignor if full else None,
            topic_partitions=self._by_topic(owned) if full or owned != self._reported else None,
        )

    def _on_heard(self, sent_s: float, answer: Any) -> None:
        if answer.member_epoch != self.epoch:
            self._before = (self.epoch, dict(self._owned))
            self.epoch = answer.member_epoch
            self._client.count("epochs")
        if answer.assignment is not None:
            self._assigned = {
                self._client.partition_of(topic, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            }
            self._client.count("assignments")
        self._model.on_heard(self.belief, sent_s, self.epoch, sorted(self._assigned))
        if self._random.chance(0.7):
            self._reconcile()

    def _reconcile(self) -> None:
        """Give up what is not assigned any more; the next heartbeat says so."""
        self._model.on_given_up(self.belief, [place for place in self._owned if place not in self._assigned])

    async def _leave(self) -> None:
        """It gives up everything first."""
        self._assigned.clear()
        self._reconcile()
        leaving = self._heartbeat(frozenset())
        leaving.member_epoch = LEAVING
        if self._instance_id is not None and self._random.chance(0.5):
            leaving.member_epoch = LEAVING_FOR_A_WHILE
        try:
            await self._ask(CONSUMER_GROUP_HEARTBEAT, self._version, leaving)
        finally:
            self._client.count("leaves")
            self._begin()
        await self._client.runtime.tasks.sleep(self._random.between(*AWAY_S))

    def _abandon(self) -> None:
        """It is out: it gives up everything, and joins again under its name."""
        self._assigned.clear()
        self._before = (self.epoch, dict(self._owned))
        self._reconcile()
        self.epoch, self._says_all = JOINING, True

    # ---- helpers --------------------------------------------------------------------------------------------

    def _by_topic(self, places: frozenset[TopicPartition]) -> tuple[SimpleNamespace, ...]:
        topics: dict[str, list[int]] = {}
        for place in sorted(places):
            topics.setdefault(place.topic, []).append(place.partition)
        ids = self._client.topic_ids
        return tuple(
            SimpleNamespace(topic_id=ids[name], partitions=tuple(indexes)) for name, indexes in topics.items()
        )

    async def _ask(self, api_key: int, version: int, message: object) -> Any:
        wire = await self._client.wire(group_coordinator(self._group_id))
        return await wire.ask(api_key, version, message)


async def commit(
    client: Client,
    model: ConsumerGroupModel,
    belief: Belief,
    member_id: str,
    epoch: int,
    owned: dict[TopicPartition, int],
    group_id: str = GROUP,
    instance_id: str | None = None,
) -> None:
    """Commit an offset of one of the partitions that a member owns, or owned in an epoch before."""
    places = sorted(owned)
    place = places[client.random.randrange(len(places))]
    number = model.on_commit_sent(belief, place, owned[place])
    row = SimpleNamespace(
        partition_index=place.partition,
        committed_offset=number,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    request = SimpleNamespace(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=(client.topic(place.topic, partitions=(row,)),),
    )
    wire = await client.wire(group_coordinator(group_id))
    answer = await wire.ask(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, request)
    fate = Fate.of(answer.topics[0].partitions[0].error_code)
    if fate is Fate.UNKNOWN:
        client.mistrust(group_coordinator(group_id))
    model.on_commit_answered(belief, place, number, fate)
    client.count(f"commits {fate.value}")
