"""The active controller's driver: decide, write to the store, apply to its image, publish; one change at a time.

Decisions are pure, and in modules of their own. A change is answered when it is durable and published: brokers follow
`deltas`, and `until_applied` waits for them. Where the store fails, nothing has changed and the answer says so. Where
another controller has taken over, this one changes nothing any more, and says so once (`on_fenced`).

Changes wait for each other in the order in which they came (`change_queue`). Proposals of in-sync sets that wait
together are decided together, and cost one write. A caller that is cancelled does not stop the change that it has
asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.controller import acls, brokers
from moldau.controller.alter_partition import Altered, Proposal, decide_alter_partition
from moldau.controller.brokers import Next, Registration
from moldau.controller.change_queue import ChangeQueue, OnDelta
from moldau.controller.changes import Changes
from moldau.controller.configs import Alterations, AlterOutcome, decide_alter
from moldau.controller.delta_log import Applied, DeltaLog
from moldau.controller.leaders import Elected, Election, decide_elections, decide_rebalance
from moldau.controller.min_isr import ALL_BROKERS, MinIsrChange, decide_min_isr
from moldau.controller.news import News
from moldau.controller.persistence import PersistentImage, new_uuid
from moldau.controller.producer_ids import Block, decide_block
from moldau.controller.quotas import QuotaAlteration, QuotaOutcome, decide_alter_quotas
from moldau.controller.reassignments import (
    Ongoing,
    Reassigned,
    Reassignment,
    decide_reassignments,
    list_reassignments,
)
from moldau.controller.rules import Rules
from moldau.controller.slices import PARTITIONS_PER_SLICE, Portion, Slices, in_slices
from moldau.controller.topics import (
    Charge,
    CreateOutcome,
    DeleteOutcome,
    MorePartitions,
    NewTopic,
    PartitionsOutcome,
    TopicReference,
    decide_create,
    decide_create_partitions,
    decide_delete,
    free,
)
from moldau.metadata.image import ClusterImage, snapshot_of
from moldau.metadata.records import (
    NOWHERE,
    BrokerInfo,
    ConfigResource,
    Position,
    Record,
    ResourceType,
    Snapshot,
)
from moldau.runtime.ports import Random, Tasks
from moldau.security.acls import Acl, AclFilter

if TYPE_CHECKING:
    from moldau.controller.users import Deletion, Upsertion, UserOutcome

log = logging.getLogger(__name__)

ELECTIONS_PER_TICK = 1_000
KNOWN_PATIENCE_S = 1.0

OutcomeT = TypeVar("OutcomeT", CreateOutcome, DeleteOutcome, PartitionsOutcome, AlterOutcome)
PlacedT = TypeVar("PlacedT", Elected, Reassigned)
T = TypeVar("T")


class HasConfig(Protocol):
    @property
    def config(self) -> BrokerConfig: ...


class Heartbeat(NamedTuple):
    """What a broker hears."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(slots=True, eq=False)
class _Proposed:
    broker_id: int
    broker_epoch: int
    proposals: Sequence[Proposal]
    answer: list[Altered] | KafkaError | None = None


class Controller:
    def __init__(
        self,
        state: PersistentImage,
        random: Random,
        broker: HasConfig,
        tasks: Tasks,
        *,
        on_delta: OnDelta | None = None,
        on_fenced: Callable[[str], object] | None = None,
    ) -> None:
        self._state = state
        self._random = random
        self._broker = broker
        self._tasks = tasks
        self._on_fenced = on_fenced
        self._news = News(tasks)
        self._queue = ChangeQueue(state, tasks, on_delta, self._fenced)
        self._applied = Applied(tasks)
        self._proposed: list[_Proposed] = []
        self._live: dict[int, UUID] = {}
        self._registered_at: dict[int, Position] = {}
        self._shut_down_at: dict[int, Position] = {}
        self._began_at = state.image.position
        self._min_isr_at = self._began_at
        """When a min.insync.replicas was last changed, as far as this controller knows."""
        self._settings: BrokerConfig | None = None

    @property
    def image(self) -> ClusterImage:
        return self._state.image

    @property
    def position(self) -> Position:
        return self.image.position

    @property
    def deltas(self) -> DeltaLog:
        return self._queue.deltas

    @property
    def is_active(self) -> bool:
        return not self._queue.is_fenced

    def snapshot(self) -> Snapshot:
        return snapshot_of(self.image)

    def resign(self, reason: str) -> None:
        """Change nothing any more, and wake all who wait."""
        self._queue.resign(reason)

    def _fenced(self, reason: str) -> None:
        self._applied.close()
        if self._on_fenced is not None:
            self._on_fenced(reason)

    def applied(self, broker_id: int, position: Position) -> None:
        """A broker's image is at this position, and the broker has acted on it."""
        self._applied.note(broker_id, position)

    def position_of(self, broker_id: int) -> Position:
        """How far a broker has come, as far as it has said."""
        return self._applied.position(broker_id) or NOWHERE

    async def until_known(self, position: Position) -> None:
        """Wait until all who serve have acted on a write, for a moment: one of them may hang, and is fenced later. Only
        the first change waits for that one.
        """
        await self._applied.until_known(position, list(self.image.brokers), KNOWN_PATIENCE_S)

    async def until_applied(self, position: Position, brokers: Sequence[int], timeout_s: float) -> bool:
        """Whether these brokers have acted on a write in time; who is fenced meanwhile is not waited for."""
        return await self._applied.until(position, brokers, timeout_s)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = free
    ) -> list[CreateOutcome]:
        def decide() -> Slices[list[CreateOutcome]]:
            return decide_create(self.image, self._config, topics, lambda: new_uuid(self._random), charge)

        return await self._change(decide, validate_only)

    async def delete_topics(
        self, topics: Sequence[TopicReference], *, charge: Charge = free
    ) -> list[DeleteOutcome]:
        enabled = self._config["delete.topic.enable"]
        return await self._change(
            lambda: decide_delete(self.image, topics, deletion_enabled=enabled, charge=charge),
            validate_only=False,
        )

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False, charge: Charge = free
    ) -> list[PartitionsOutcome]:
        return await self._change(
            lambda: decide_create_partitions(self.image, self._config, topics, charge), validate_only
        )

    async def alter_configs(
        self, resources: Sequence[Alterations], *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        return await self._change(lambda: decide_alter(self.image, self._config, resources), validate_only)

    async def create_acls(self, wanted: Sequence[Acl]) -> list[KafkaError | None]:
        return await self._perform_told(lambda: acls.decide_create(self.image, wanted))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Those that each filter means, which are gone. KafkaError where the write failed."""
        return await self._perform_told(lambda: acls.decide_delete(self.image, filters))

    async def alter_users(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> list[UserOutcome]:
        """KafkaError where the write failed."""
        from moldau.controller.users import SECRET_BYTES, decide_alter_users  # most clusters have no users

        secret = self._random.bytes(SECRET_BYTES)
        return await self._perform_told(lambda: decide_alter_users(self.image, deletions, upsertions, secret))

    async def alter_quotas(
        self, wanted: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[QuotaOutcome]:
        """What is said to each entity, once. KafkaError where the write failed."""
        if validate_only:
            outcomes, _ = await self._in_slices(decide_alter_quotas(self.image, wanted))
            return outcomes
        return await self._perform_told(lambda: decide_alter_quotas(self.image, wanted))

    async def register_broker(self, wanted: Registration) -> int:
        """The broker's epoch. It is fenced until it has seen its registration, and asks to serve."""

        async def decide() -> tuple[int, Sequence[Record]]:
            live = self._live.get(wanted.id)
            registered = await self._in_slices(
                brokers.decide_register(self.image, self._rules(), wanted, live)
            )
            return registered.epoch, registered.records

        def done(error: KafkaError | None) -> None:
            if error is None:
                self._applied.forget(wanted.id)
                self._registered_at[wanted.id] = self.position
                self._shut_down_at.pop(wanted.id, None)

        return await self._queue.perform(decide, done)

    async def heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        position: Position,
        *,
        wants_fence: bool = False,
        wants_shut_down: bool = False,
    ) -> Heartbeat:
        """A broker asks to serve, to be fenced, or to end. KafkaError where it is not the one that is registered."""
        brokers.check_epoch(self.image, broker_id, broker_epoch)
        self.applied(broker_id, position)

        def next_() -> Next:
            broker = brokers.check_epoch(self.image, broker_id, broker_epoch)
            return brokers.next_state(
                self.image,
                broker,
                is_caught_up=self._has_session(broker)
                and position >= self._registered_at.get(broker_id, self._began_at),
                wants_fence=wants_fence,
                wants_shut_down=wants_shut_down,
                others_know=self._others_know(broker_id),
            )

        async def decide() -> tuple[Next, Sequence[Record]]:
            outcome = next_()
            return outcome, await self._heartbeat_records(outcome, broker_id)

        def done(error: KafkaError | None) -> None:
            broker = self.image.registered.get(broker_id)
            if error is None and broker is not None and broker.is_shutting_down:
                self._shut_down_at.setdefault(broker_id, self.position)

        outcome = next_()
        if outcome is not Next.STAY:
            outcome = await self._queue.perform(decide, done)
        return Heartbeat(
            is_caught_up=position >= self._registered_at.get(broker_id, self._began_at),
            is_fenced=broker_id not in self.image.brokers,
            should_shut_down=outcome is Next.GO,
        )

    async def _heartbeat_records(self, outcome: Next, broker_id: int) -> list[Record]:
        rules = self._rules()
        match outcome:
            case Next.FENCE | Next.GO:
                return await self._in_slices(brokers.decide_fence(self.image, rules, (broker_id,)))
            case Next.UNFENCE:
                return await self._in_slices(brokers.decide_unfence(self.image, rules, broker_id))
            case Next.SHUT_DOWN:
                return await self._in_slices(brokers.decide_shut_down(self.image, rules, broker_id))
        return []

    def _others_know(self, broker_id: int) -> bool:
        """Whether all who serve have seen where a broker's leaders went (Kafka's lowestActiveOffset)."""
        moved = self._shut_down_at.get(broker_id, self._began_at)
        others = (broker.id for broker in self.image.brokers.values() if broker.is_active)
        return all((self._applied.position(other) or Position(-1, -1)) >= moved for other in others)

    def _has_session(self, broker: BrokerInfo) -> bool:
        """As far as is known: one that was fenced since its session ended may ask before it has heard of that."""
        return not self._live or self._live.get(broker.id) == broker.incarnation

    async def broker_lost(self, broker_id: int, incarnation: UUID) -> None:
        """A broker's session has ended: it is fenced, unless another life of it has registered since."""
        if self._live.get(broker_id) == incarnation:
            del self._live[broker_id]
        await self.fence({broker_id: incarnation})

    async def brokers_live(self, live: Mapping[int, UUID], awaited: Collection[int] = ()) -> None:
        """Who has a session now, with its incarnation; all others are fenced, but for those who are awaited."""
        self._live = dict(live)
        await self.fence(
            {
                broker.id: broker.incarnation
                for broker in self.image.registered.values()
                if live.get(broker.id) != broker.incarnation and broker.id not in awaited
            }
        )

    async def fence(self, lost: Mapping[int, UUID]) -> None:
        """Go on without these brokers, in these lives of theirs."""

        async def decide() -> tuple[list[int], Sequence[Record]]:
            registered = self.image.registered
            gone = [
                broker_id
                for broker_id, incarnation in lost.items()
                if broker_id in registered and registered[broker_id].incarnation == incarnation
            ]
            if not gone:
                return gone, []
            return gone, await self._in_slices(brokers.decide_fence(self.image, self._rules(), gone))

        for broker_id in await self._queue.perform(decide):
            self._applied.forget(broker_id)

    async def unregister_broker(self, broker_id: int) -> None:
        await self._perform_slices(lambda: brokers.decide_unregister(self.image, self._rules(), broker_id))
        self._applied.forget(broker_id)

    async def report_replicas(
        self,
        broker_id: int,
        broker_epoch: int,
        *,
        offline: Sequence[TopicPartition] = (),
        online: Sequence[TopicPartition] = (),
    ) -> None:
        """Partitions whose disk has failed on a broker that goes on, or is there after all."""

        def decide() -> tuple[None, Sequence[Record]]:
            brokers.check_epoch(self.image, broker_id, broker_epoch)
            return None, brokers.decide_replicas(self.image, self._rules(), broker_id, offline, online)

        await self._queue.perform(decide)

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]
    ) -> list[Altered]:
        """Other in-sync sets, as leaders propose them. KafkaError concerns the whole request."""
        brokers.check_epoch(self.image, broker_id, broker_epoch)
        await self._applied.until(self._min_isr_at, [broker_id], KNOWN_PATIENCE_S)
        proposed = _Proposed(broker_id, broker_epoch, proposals)
        self._proposed.append(proposed)
        batch: list[_Proposed] = []

        async def decide() -> tuple[None, Sequence[Record]]:
            batch[:], self._proposed = self._proposed, []
            return None, await self._in_slices(self._decide_proposed(batch))

        def done(error: KafkaError | None) -> None:
            for one in batch if error is not None else ():
                one.answer = error

        try:
            await self._queue.perform(decide, done)
        except KafkaError as error:
            if proposed in self._proposed:
                self._proposed.remove(proposed)
            proposed.answer = proposed.answer or error
        # Another's turn may have decided on it before, and has ended by now.
        if isinstance(proposed.answer, KafkaError):
            raise proposed.answer
        return proposed.answer or []

    def _check_knows_min_isr(self, broker_id: int) -> None:
        """A leader takes its new set from the answer, and min.insync.replicas from what it has heard so far. It must
        not commit with a set that is too small by now: those who fall out of that stay eligible.
        """
        if self.position_of(broker_id) < self._min_isr_at:
            reason = f"broker {broker_id} has not heard of another min.insync.replicas yet"
            raise KafkaError(ErrorCode.request_timed_out, reason)

    def _decide_proposed(self, batch: Sequence[_Proposed]) -> Slices[Sequence[Record]]:
        """All that wait, together."""
        changes = Changes(self.image, self._rules())
        in_slice = 0
        for one in batch:
            altered: list[Altered] = []
            try:
                brokers.check_epoch(self.image, one.broker_id, one.broker_epoch)
                self._check_knows_min_isr(one.broker_id)
                for start in range(0, len(one.proposals), PARTITIONS_PER_SLICE):
                    some = one.proposals[start : start + PARTITIONS_PER_SLICE]
                    in_slice += len(some)
                    if in_slice > PARTITIONS_PER_SLICE:
                        in_slice = len(some)
                        yield
                    altered += decide_alter_partition(self.image, changes, one.broker_id, some)
                one.answer = altered
            except KafkaError as error:
                one.answer = error
        return changes.records()

    async def elect_leaders(
        self, election: Election, places: Sequence[TopicPartition] | None
    ) -> list[Elected]:
        return await self._change_partitions(
            lambda: decide_elections(self.image, self._rules(), election, places)
        )

    async def alter_reassignments(
        self, wanted: Sequence[Reassignment], *, may_change_factor: bool = True
    ) -> list[Reassigned]:
        return await self._change_partitions(
            lambda: decide_reassignments(
                self.image, self._rules(), wanted, may_change_factor=may_change_factor
            )
        )

    def list_reassignments(self, wanted: Mapping[str, Sequence[int]] | None = None) -> list[Ongoing]:
        return list_reassignments(self.image, wanted)

    async def rebalance(self) -> None:
        """Preferred leaders again, where a broker leads too few of its own. Whoever calls this from time to time looks
        at auto.leader.rebalance.enable.
        """
        await self._perform_slices(lambda: decide_rebalance(self.image, self._rules()))

    async def elect_leaderless(self) -> None:
        """Leaders for partitions that have none and can have one by now."""
        await self._perform_slices(
            lambda: brokers.decide_leaderless(self.image, self._rules(), ELECTIONS_PER_TICK)
        )

    async def allocate_producer_ids(self) -> Block:
        def decide() -> tuple[Block, Sequence[Record]]:
            record, block = decide_block(self.image)
            return block, [record]

        return await self._queue.perform(decide)

    @property
    def _config(self) -> BrokerConfig:
        """The settings of this broker, as this controller has decided: the broker itself hears of that a bit later."""
        of_all = self.image.configs(ALL_BROKERS)
        config = self._broker.config
        own = self.image.configs(ConfigResource(ResourceType.BROKER, str(config.node_id)))
        known = self._settings
        if known is None or (known.dynamic_default, known.dynamic) != (of_all, own):
            known = self._settings = config.with_dynamic(of_all, own)
        return known

    def _rules(self) -> Rules:
        return Rules(self._config)

    async def _in_slices(self, decision: Slices[T]) -> T:
        return await in_slices(self._tasks, decision)

    async def _perform_slices(self, decide: Callable[[], Slices[Sequence[Record]]]) -> None:
        async def decide_all() -> tuple[None, Sequence[Record]]:
            return None, await self._in_slices(decide())

        await self._queue.perform(decide_all)

    async def _change(
        self, decide: Callable[[], Slices[list[OutcomeT]]], validate_only: bool
    ) -> list[OutcomeT]:
        outcomes: list[OutcomeT] = []
        written: list[Record] = []
        news: dict[int, str] = {}
        has_min_isr = False

        async def decide_all() -> tuple[None, Sequence[Record]]:
            nonlocal has_min_isr
            outcomes[:] = await self._in_slices(decide())
            if validate_only:
                return None, []
            records: list[Record] = [outcome.record for outcome in outcomes if outcome.record is not None]
            found: MinIsrChange = await self._in_slices(decide_min_isr(self.image, self._config, records))
            has_min_isr = found.is_changed
            news.update(self._news.prepare(self.image, records))
            return None, [*found.partitions, *records]

        def note(_error: KafkaError | None) -> None:
            self._news.tell(news, written)
            if has_min_isr:
                self._min_isr_at = self.position

        try:
            await self._queue.perform(decide_all, note, written)
        except KafkaError as error:
            outcomes = outcomes or await self._in_slices(decide())
            done, failure = set(map(id, written)), error
            return await self._in_slices(
                _each(outcomes, lambda one: one if id(one.record) in done else _failed(one, failure))
            )
        position = self.position
        if not validate_only:  # also who comes second finds what the first has changed
            await self.until_known(position)
        return await self._in_slices(_each(outcomes, lambda one: one._replace(position=position)))

    async def _perform_told(self, decide: Callable[[], Slices[tuple[T, Sequence[Record]]]]) -> T:
        """A change that people read of in the log. It is done when all brokers know."""
        news: dict[int, str] = {}
        written: list[Record] = []

        async def decide_all() -> tuple[T, Sequence[Record]]:
            outcome, records = await self._in_slices(decide())
            news.update(self._news.prepare(self.image, records))
            return outcome, records

        outcome = await self._queue.perform(
            decide_all, lambda _error: self._news.tell(news, written), written
        )
        await self.until_known(self.position)
        return outcome

    async def _change_partitions(
        self, decide: Callable[[], Slices[tuple[list[PlacedT], Sequence[Record]]]]
    ) -> list[PlacedT]:
        outcomes: list[PlacedT] = []

        async def decide_all() -> tuple[None, Sequence[Record]]:
            outcomes[:], records = await self._in_slices(decide())
            return None, records

        try:
            await self._queue.perform(decide_all)
        except KafkaError as error:
            if not outcomes:
                outcomes[:], _ = await self._in_slices(decide())
            return [
                outcome if outcome.error else outcome._replace(error=error.code, message=error.message)
                for outcome in outcomes
            ]
        await self.until_known(self.position)
        return outcomes


def _each(outcomes: Sequence[OutcomeT], change: Callable[[OutcomeT], OutcomeT]) -> Slices[list[OutcomeT]]:
    portion = Portion()
    changed: list[OutcomeT] = []
    for outcome in outcomes:
        if portion.take():
            yield
        changed.append(change(outcome))
    return changed


def _failed(outcome: OutcomeT, error: KafkaError) -> OutcomeT:
    if outcome.record is None:
        return outcome
    return outcome._replace(error=error.code, message=error.message, record=None)
