"""Decisions on brokers: who registers, who is fenced and unfenced, who shuts down, who goes for good. Pure.

A broker that is fenced leaves the in-sync sets and leads nothing. One that comes back from a power cut (not stopped
cleanly, and the machine's boot id is another), or without some of its logs, may have lost what it acknowledged: for
those partitions it leaves the eligible replicas as well before it may lead (KIP-966), unless it is the last of them:
nobody has more then. Where the last one comes with an emptied disk the others do have more, though not everything: only
an unclean election makes one of them the leader. A leader that was not stopped cleanly, and stays the only one who can
lead, goes on in a new epoch: its log may lack an unflushed tail, and a reader could not tell the records that take
those offsets (KIP-320).

What concerns all partitions of a broker is decided in slices (`slices`). Partitions that lose their leader come first:
their clients can do nothing, while those of the others wait for an in-sync set at most.

A registration gives the broker an epoch that no other had (KIP-903). (Kafka's ClusterControlManager,
BrokerHeartbeatManager, and the handleBroker... methods of ReplicationControlManager.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.controller.changes import Changes
from moldau.controller.partition_change import Target
from moldau.controller.rules import Rules
from moldau.controller.slices import PARTITIONS_PER_SLICE, Slices
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    NO_LEADER,
    BrokerChanged,
    BrokerInfo,
    BrokerRegistered,
    BrokerUnregistered,
    PartitionState,
    Record,
)

NO_EPOCH = -1


class Registration(NamedTuple):
    """What a broker says of itself when it comes. It has opened its logs before."""

    id: int
    incarnation: UUID
    listeners: Mapping[str, tuple[str, int] | None]
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    boot_id: str = ""
    previous_epoch: int = NO_EPOCH
    """Its epoch when it was last stopped cleanly, by the mark that it found in its log dirs; -1 where there is none."""
    lost: Collection[TopicPartition] = ()
    """Partitions that the cluster says it holds, and whose log was not there, or not as it was left."""
    cluster_id: str | None = None


class Registered(NamedTuple):
    records: list[Record]
    epoch: int


def check_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerInfo:
    """The broker as it is registered; KafkaError where another life of it is, or none."""
    broker = image.registered.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.stale_broker_epoch, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.stale_broker_epoch,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
        )
    return broker


def decide_register(
    image: ClusterImage, rules: Rules, wanted: Registration, live: UUID | None = None
) -> Slices[Registered]:
    """`live` is the incarnation that has a session in the store, where that is known."""
    if wanted.cluster_id is not None and wanted.cluster_id != image.cluster_id:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"Expected cluster ID {image.cluster_id}, but got cluster ID {wanted.cluster_id}",
        )
    if live is not None and live != wanted.incarnation:
        raise KafkaError(
            ErrorCode.duplicate_broker_registration, "Another broker is registered with that broker id."
        )
    _check_log_dirs(image, wanted)
    before = image.registered.get(wanted.id)
    if before is not None and before.incarnation == wanted.incarnation and not _begins_anew(before, wanted):
        broker = before._replace(
            listeners=wanted.listeners, rack=wanted.rack, log_dirs=wanted.log_dirs, boot_id=wanted.boot_id
        )
        return Registered([] if broker == before else [BrokerRegistered(broker)], before.epoch)
    broker = BrokerInfo(
        wanted.id,
        wanted.listeners,
        wanted.rack,
        image.position.sequence + 1,
        wanted.incarnation,
        is_fenced=True,
        log_dirs=wanted.log_dirs,
        boot_id=wanted.boot_id,
    )
    changes = yield from _come_back(image, rules, wanted, before)
    # The registration comes last: interrupted before it, the broker registers again, and all of it is done again.
    return Registered([*changes.records(), BrokerRegistered(broker)], broker.epoch)


def _begins_anew(before: BrokerInfo, wanted: Registration) -> bool:
    """A process that was fenced, and knows it: what it asked for in its old epoch counts for nothing any more."""
    return before.is_fenced and before.epoch == wanted.previous_epoch


def _check_log_dirs(image: ClusterImage, wanted: Registration) -> None:
    if len(set(wanted.log_dirs)) < len(wanted.log_dirs):
        raise KafkaError(ErrorCode.invalid_registration, "Duplicate directory ID in request")
    for other in image.registered.values():
        if other.id != wanted.id:
            for log_dir in wanted.log_dirs:
                if log_dir in other.log_dirs:
                    raise KafkaError(
                        ErrorCode.invalid_registration,
                        f"Broker {other.id} is already registered with directory {log_dir}",
                    )


def _come_back(
    image: ClusterImage, rules: Rules, wanted: Registration, before: BrokerInfo | None
) -> Slices[Changes]:
    # A clean stop of a life that never registered says nothing of the one before: its mark has no epoch, or another.
    is_clean = wanted.previous_epoch != NO_EPOCH and (before is None or before.epoch == wanted.previous_epoch)
    cut_off = not is_clean and (before is None or before.boot_id != wanted.boot_id)
    is_emptied = before is not None and _has_another_disk(before, wanted)
    broker_id, lost = wanted.id, frozenset(wanted.lost)
    changes = Changes(image, rules, leaving=(broker_id,))
    for number, (topic, index, state) in enumerate(changes.partitions(), 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        if broker_id not in state.replicas:
            continue
        has_lost = bool(lost) and TopicPartition(topic.name, index) in lost
        offline = _without(state.offline, broker_id)
        has_nothing = has_lost and is_emptied and len(state.replicas) > 1
        if _is_last(state, broker_id) and not has_nothing:
            if state.leader == broker_id and (has_lost or not is_clean):
                changes.put(
                    topic, index, state._replace(leader_epoch=state.leader_epoch + 1, offline=offline)
                )
            elif offline != state.offline:
                changes.put(topic, index, state._replace(offline=offline))
            continue
        ineligible = (broker_id,) if has_lost or cut_off else ()
        changes.change(
            topic,
            index,
            Target(isr=_without(state.isr, broker_id), ineligible=ineligible, offline=offline),
        )
        left = changes.state(topic, index)
        if has_nothing and broker_id in left.last_known_elr:  # an unclean election begins with the others
            changes.put(topic, index, left._replace(last_known_elr=_without(state.replicas, broker_id)))
    return changes


def _has_another_disk(before: BrokerInfo, wanted: Registration) -> bool:
    """Whether a data folder is gone, and another one begun: what is not there was there, or may have been. (One that is
    only gone may be back with the next start, and a log that is only missing may never have been made.)"""
    had, has = set(before.log_dirs), set(wanted.log_dirs)
    return not had <= has and not has <= had


def _is_last(state: PartitionState, broker_id: int) -> bool:
    """Whether nobody else has everything that was acknowledged."""
    return state.isr + state.elr == (broker_id,)


def _without(ids: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(id_ for id_ in ids if id_ != broker_id) if broker_id in ids else ids


def decide_fence(image: ClusterImage, rules: Rules, broker_ids: Collection[int]) -> Slices[list[Record]]:
    """These brokers are gone, or ask for it: they leave the in-sync sets, and others lead."""
    records = yield from _leave(image, rules, broker_ids)
    brokers = [image.registered[broker_id] for broker_id in broker_ids]
    # Its shutdown is over with that, as in BrokerHeartbeatManager.touch: a broker that is down gets replicas.
    return records + [
        _changed(broker, is_fenced=True, is_shutting_down=False) for broker in brokers if not broker.is_fenced
    ]


def decide_unfence(image: ClusterImage, rules: Rules, broker_id: int) -> Slices[list[Record]]:
    """The broker serves: what has no leader and can have it is led by it."""
    changes = Changes(image, rules, coming=(broker_id,))
    for number, (topic, index, state) in enumerate(changes.partitions(), 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        if state.leader == NO_LEADER and broker_id in state.replicas:
            changes.change(topic, index)
    broker = image.registered[broker_id]
    # It is unfenced last: a long change is several writes, and who sees it serve finds all its leaders there.
    return [*changes.records(), _changed(broker, is_fenced=False, is_shutting_down=False)]


def decide_shut_down(image: ClusterImage, rules: Rules, broker_id: int) -> Slices[list[Record]]:
    """The broker will go: others lead what they can, and it leaves the in-sync sets."""
    leaving = _changed(image.registered[broker_id], is_shutting_down=True)
    records = yield from _leave(image, rules, (broker_id,))
    return [leaving, *records]


def _leave(image: ClusterImage, rules: Rules, broker_ids: Collection[int]) -> Slices[list[Record]]:
    leaving = frozenset(broker_ids)
    led = Changes(image, rules, leaving=leaving)
    followed = Changes(image, rules, leaving=leaving)
    for number, (topic, index, state) in enumerate(led.partitions(), 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        if state.leader in leaving or not leaving.isdisjoint(state.isr):
            staying = tuple(replica for replica in state.isr if replica not in leaving)
            changes = led if state.leader in leaving else followed
            changes.change(topic, index, Target(isr=staying))
    return [*led.records(), *followed.records()]


def decide_unregister(image: ClusterImage, rules: Rules, broker_id: int) -> Slices[list[Record]]:
    if broker_id not in image.registered:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not currently registered"
        )
    changes = Changes(image, rules, leaving=(broker_id,))
    for number, (topic, index, state) in enumerate(changes.partitions(), 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        if broker_id in state.isr or broker_id in state.elr:
            ineligible = () if _is_last(state, broker_id) else (broker_id,)
            changes.change(topic, index, Target(isr=_without(state.isr, broker_id), ineligible=ineligible))
    return [*changes.records(), BrokerUnregistered(broker_id)]


def decide_replicas(
    image: ClusterImage,
    rules: Rules,
    broker_id: int,
    offline: Collection[TopicPartition] = (),
    online: Collection[TopicPartition] = (),
) -> list[Record]:
    """Some of the broker's disks have failed, or serve after all, while it goes on itself."""
    changes = Changes(image, rules)
    for has_failed, places in ((True, offline), (False, online)):
        for name, index in places:
            topic = image.topics.get(name)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            state = changes.state(topic, index)
            if broker_id not in state.replicas or (broker_id in state.offline) == has_failed:
                continue
            others = _without(state.offline, broker_id)
            isr = _without(state.isr, broker_id) if has_failed else state.isr
            target = Target(isr=isr, offline=(*others, broker_id) if has_failed else others)
            changes.change(topic, index, target)
    return [*changes.records()]


def _changed(
    broker: BrokerInfo, is_fenced: bool | None = None, is_shutting_down: bool | None = None
) -> BrokerChanged:
    return BrokerChanged(
        broker.id,
        broker.epoch,
        broker.is_fenced if is_fenced is None else is_fenced,
        broker.is_shutting_down if is_shutting_down is None else is_shutting_down,
    )


class Next(Enum):
    """What a heartbeat comes to (Kafka's BrokerControlState)."""

    STAY = "as before"
    FENCE = "fenced, as it asked"
    UNFENCE = "serves"
    SHUT_DOWN = "its leaders move, and it waits"
    GO = "it may end now"


def next_state(
    image: ClusterImage,
    broker: BrokerInfo,
    *,
    is_caught_up: bool,
    wants_fence: bool,
    wants_shut_down: bool,
    others_know: bool,
) -> Next:
    """`is_caught_up`: the broker's image has its own registration. `others_know`: all that serve have seen its leaders
    move, so that they send clients to the new ones.
    """
    if broker.is_shutting_down and not broker.is_fenced:
        return Next.GO if others_know and not leads_any(image, broker.id) else Next.STAY
    if broker.is_fenced:
        if wants_shut_down:
            return Next.GO
        return Next.UNFENCE if not wants_fence and is_caught_up else Next.STAY
    if wants_shut_down:
        moves = not wants_fence and leads_any(image, broker.id)
        return Next.SHUT_DOWN if moves else Next.GO
    return Next.FENCE if wants_fence else Next.STAY


def leads_any(image: ClusterImage, broker_id: int) -> bool:
    return any(state.leader == broker_id for topic in image.topics.values() for state in topic.partitions)


def decide_leaderless(image: ClusterImage, rules: Rules, elections_max: int) -> Slices[list[Record]]:
    """Leaders for partitions that have none and could: what was left by a controller that was interrupted, and unclean
    elections that have become allowed since.
    """
    changes = Changes(image, rules)
    count = 0
    for number, (topic, index, state) in enumerate(changes.partitions(), 1):
        if number % PARTITIONS_PER_SLICE == 0:
            yield
        if state.leader == NO_LEADER and count < elections_max:
            count += changes.change(topic, index) is not None
    return [*changes.records()]
