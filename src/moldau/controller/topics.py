"""Decisions on topics: what CreateTopics, DeleteTopics and CreatePartitions may do, with Kafka's answers.
Pure.

Each decision takes the image as it is and says what happens to every topic asked for: a record to apply, or
an error with the text that Kafka gives. A request is decided as a whole: what one topic gets does not depend
on the others, except for names that are given twice, which are all refused, and for the room that there is.

What is too large is refused before a list of that size is made, and what no data folder could hold before it is
recorded (`base.limits`): a record is there for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.base.limits import (
    CONFIGS_PER_RESOURCE_MAX,
    PARTITIONS_PER_REQUEST_MAX,
    PARTITIONS_PER_TOPIC_MAX,
)
from moldau.config.broker import BrokerConfig
from moldau.config.key import ConfigError
from moldau.config.topic import check_topic_overrides
from moldau.controller.names import check_topic_name
from moldau.controller.placement import check_manual_assignment, new_partition, placing
from moldau.controller.slices import (
    LOOKS_PER_SLICE,
    PARTITIONS_PER_SLICE,
    Portion,
    Slices,
    times_named,
)
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import (
    NOWHERE,
    PartitionsAdded,
    PartitionState,
    Position,
    TopicCreated,
    TopicDeleted,
)

PARTITIONS_PER_BROKER = "moldau.max.partitions.per.broker"
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
METADATA_TOPIC = "__cluster_metadata"
NOT_HERE = "This server does not host this topic-partition."
_DEFAULT = -1
REPLICAS_WEIGHING_1 = 16
TOPIC_WEIGHT = 5
"""What a topic takes beside its partitions, in partitions."""

Charge = Callable[[int], object]
"""Told of partitions before they are created or deleted; KafkaError where there may not be so many now."""


def free(_partitions: int) -> None:
    """Nobody counts."""


class NewTopic(NamedTuple):
    """A topic to create. -1 partitions or replicas take the broker's default, or come from the
    assignments.
    """

    name: str
    partitions: int = _DEFAULT
    replication_factor: int = _DEFAULT
    #: (partition, replicas) in the order given.
    assignments: Sequence[tuple[int, tuple[int, ...]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class MorePartitions(NamedTuple):
    """A topic to enlarge to so many partitions, with the replicas of the new ones where the client says
    them.
    """

    name: str
    partitions: int
    assignments: Sequence[tuple[int, ...]] | None = None


class TopicReference(NamedTuple):
    """A topic to delete: by name or by id."""

    name: str | None
    topic_id: UUID | None = None


class CreateOutcome(NamedTuple):
    name: str
    error: ErrorCode
    message: str | None
    record: TopicCreated | None
    position: Position = NOWHERE


class DeleteOutcome(NamedTuple):
    name: str | None
    topic_id: UUID | None
    error: ErrorCode
    message: str | None
    record: TopicDeleted | None
    position: Position = NOWHERE


class PartitionsOutcome(NamedTuple):
    name: str
    error: ErrorCode
    message: str | None
    record: PartitionsAdded | None
    position: Position = NOWHERE


class _Room:
    """How many partitions brokers may still take. A broker has at most one replica of each, so that nothing is counted
    while the whole cluster has fewer than one broker may have.
    """

    def __init__(self, image: ClusterImage, config: BrokerConfig) -> None:
        self._image = image
        self._max: int = config[PARTITIONS_PER_BROKER]
        self._partitions = image.partition_count
        self._taken: list[Sequence[PartitionState]] = []
        """By earlier topics of the request, while nothing is counted."""
        self._held: Counter[int] | None = None

    def take(self, name: str, partitions: Sequence[PartitionState]) -> Slices[None]:
        """KafkaError where one of the brokers would have too many. What must be there for clients always fits."""
        if self._partitions + len(partitions) > self._max and name not in INTERNAL_TOPICS:
            if self._held is None:
                self._held = yield from self._count()
            more = yield from _replicas(partitions)
            for broker, count in sorted(more.items()):
                if self._held[broker] + count > self._max:
                    raise KafkaError(
                        ErrorCode.policy_violation,
                        f"Broker {broker} would have {self._held[broker] + count} partitions, and may have "
                        f"{self._max} ({PARTITIONS_PER_BROKER}).",
                    )
            self._held += more
        else:
            self._taken.append(partitions)
        self._partitions += len(partitions)

    def _count(self) -> Slices[Counter[int]]:
        held: Counter[int] = Counter()
        there = (topic.partitions for topic in self._image.topics.values())
        for number, partitions in enumerate(chain(there, self._taken), 1):
            held += yield from _replicas(partitions)
            if number % PARTITIONS_PER_SLICE == 0:
                yield
        return held


def _replicas(partitions: Sequence[PartitionState]) -> Slices[Counter[int]]:
    """How many replicas each broker has of some partitions."""
    counts: Counter[int] = Counter()
    for number, state in enumerate(partitions, 1):
        counts.update(state.replicas)
        if number % PARTITIONS_PER_SLICE == 0:
            yield
    return counts


def decide_create(
    image: ClusterImage,
    config: BrokerConfig,
    topics: Sequence[NewTopic],
    new_id: Callable[[], UUID],
    charge: Charge = free,
) -> Slices[list[CreateOutcome]]:
    times = yield from times_named(topics, lambda topic: topic.name)
    wanted = yield from _partitions_wanted(config, topics, times)
    room, portion = _Room(image, config), Portion()
    outcomes: list[CreateOutcome] = []
    placed = image.partition_count
    for topic in topics:
        if portion.take(1 + len(topic.configs)):
            yield
        count, times[topic.name] = times[topic.name], 0
        try:
            if not count:
                continue  # refused already
            if count > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            if wanted > PARTITIONS_PER_REQUEST_MAX:
                raise KafkaError(ErrorCode.policy_violation, TOO_MANY_PARTITIONS)
            record = yield from _create(image, config, topic, new_id, placed)
            yield from room.take(topic.name, record.partitions)
            charge(len(record.partitions))
            placed += len(record.partitions)
            outcomes.append(CreateOutcome(topic.name, ErrorCode.none, None, record))
            if portion.take(TOPIC_WEIGHT + len(record.partitions)):
                yield
        except KafkaError as error:
            outcomes.append(CreateOutcome(topic.name, error.code, error.message, None))
    return outcomes


def _partitions_wanted(
    config: BrokerConfig, topics: Sequence[NewTopic], times: Mapping[Hashable, int]
) -> Slices[int]:
    """By all topics together that are named once."""
    default: int = config["num.partitions"]
    wanted = 0
    for number, topic in enumerate(topics, 1):
        if number % LOOKS_PER_SLICE == 0:
            yield
        if times[topic.name] > 1:
            continue
        if topic.assignments:
            wanted += len(topic.assignments)
        else:
            wanted += default if topic.partitions == _DEFAULT else max(0, topic.partitions)
    return wanted


def _create(
    image: ClusterImage, config: BrokerConfig, topic: NewTopic, new_id: Callable[[], UUID], placed: int
) -> Slices[TopicCreated]:
    if topic.name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.invalid_request, f"Creation of internal topic {topic.name} is prohibited.")
    check_topic_name(topic.name)
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{topic.name}' already exists.")
    if (other := image.colliding_topic(topic.name)) is not None:
        raise KafkaError(
            ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' collides with existing topic: {other}"
        )
    configs = _checked_configs(config, topic.configs)
    if topic.assignments:
        replicas = yield from _manual(image, topic)
    else:
        replicas = yield from _automatic(image, config, topic, placed)
    partitions = yield from _led(image, replicas, 0, is_manual=bool(topic.assignments))
    return TopicCreated(topic.name, new_id(), partitions, configs)


def _led(
    image: ClusterImage, placed: Sequence[tuple[int, ...]], first: int, *, is_manual: bool = False
) -> Slices[tuple[PartitionState, ...]]:
    """New partitions with their leaders; KafkaError where none of the replicas can lead."""
    active = {broker.id for broker in image.brokers.values() if broker.is_active}
    states: list[PartitionState] = []
    for index, replicas in enumerate(placed, first):
        state = new_partition(replicas, active)
        if state is None and is_manual:
            raise _bad_assignment(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )
        if state is None:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or "
                "in controlled shutdown.",
            )
        states.append(state)
        if len(states) % PARTITIONS_PER_SLICE == 0:
            yield
    return tuple(states)


def _checked_configs(config: BrokerConfig, given: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    if len(given) > CONFIGS_PER_RESOURCE_MAX:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"More than {CONFIGS_PER_RESOURCE_MAX} configs were given.",
        )
    if nulls := [name for name, value in given if value is None]:
        raise KafkaError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(nulls)}"
        )
    configs = {name: value for name, value in given if value is not None}
    try:
        check_topic_overrides(config, configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    return configs


def _manual(image: ClusterImage, topic: NewTopic) -> Slices[list[tuple[int, ...]]]:
    for value, what in (
        (topic.replication_factor, "replication factor"),
        (topic.partitions, "numPartitions"),
    ):
        if value != _DEFAULT:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    assignments: dict[int, tuple[int, ...]] = {}
    portion = Portion()
    for partition, replicas in topic.assignments:
        if portion.take(1 + len(replicas) // REPLICAS_WEIGHING_1):
            yield
        if partition in assignments:
            raise _bad_assignment(f"Found multiple manual partition assignments for partition {partition}")
        check_manual_assignment(image.registered, replicas)
        assignments[partition] = replicas
    if sorted(assignments) != list(range(len(assignments))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    placed = [assignments[partition] for partition in range(len(assignments))]
    _check_factors(placed, len(placed[0]))
    return placed


def _check_factors(placed: Sequence[Sequence[int]], replication_factor: int) -> None:
    for replicas in placed:
        if len(replicas) != replication_factor:
            raise _bad_assignment(
                "The manual partition assignment includes a partition with "
                f"{len(replicas)} replica(s), but this is not consistent with previous partitions, which have "
                f"{replication_factor} replica(s)."
            )


def _bad_assignment(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, reason)


def _automatic(
    image: ClusterImage, config: BrokerConfig, topic: NewTopic, placed: int
) -> Slices[list[tuple[int, ...]]]:
    if topic.replication_factor < _DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partitions < _DEFAULT or topic.partitions == 0:
        raise KafkaError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    partitions = config["num.partitions"] if topic.partitions == _DEFAULT else topic.partitions
    factor = topic.replication_factor
    if factor == _DEFAULT:
        factor = config["default.replication.factor"]
    return (yield from placing(image.registered.values(), partitions, factor, first=placed))


def decide_delete(
    image: ClusterImage,
    topics: Sequence[TopicReference],
    *,
    deletion_enabled: bool,
    charge: Charge = free,
) -> Slices[list[DeleteOutcome]]:
    names = yield from times_named(topics, lambda topic: topic.name)
    ids = yield from times_named(topics, lambda topic: topic.topic_id)
    portion = Portion()
    outcomes: dict[Hashable, DeleteOutcome] = {}
    for reference in topics:
        if portion.take():
            yield
        name, topic_id = reference
        try:
            if not deletion_enabled:
                raise KafkaError(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
            _check_reference(reference, names, ids)
            topic = _referenced(image, reference)
            name, topic_id = topic.name, topic.topic_id
            if names.get(name) == 1 and ids.get(topic_id) == 1:
                raise KafkaError(
                    ErrorCode.invalid_request,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            charge(len(topic.partitions))
            outcome = DeleteOutcome(name, topic_id, ErrorCode.none, None, TopicDeleted(name, topic.topic_id))
        except KafkaError as error:
            outcome = DeleteOutcome(name, topic_id, error.code, error.message, None)
        outcomes.setdefault((name, topic_id), outcome)
    return list(outcomes.values())


def _check_reference(
    reference: TopicReference, names: Mapping[Hashable, int], ids: Mapping[Hashable, int]
) -> None:
    name, topic_id = reference
    if name is not None and topic_id is not None:
        reason = "You may not specify both topic name and topic id."
    elif name is None and topic_id is None:
        reason = "Neither topic name nor id were specified."
    elif name is not None and names[name] > 1:
        reason = "Duplicate topic name."
    elif topic_id is not None and ids[topic_id] > 1:
        reason = "Duplicate topic id."
    else:
        return
    raise KafkaError(ErrorCode.invalid_request, reason)


def _referenced(image: ClusterImage, reference: TopicReference) -> Topic:
    name, topic_id = reference
    if name is not None and (topic := image.topics.get(name)) is not None:
        return topic
    if topic_id is not None and (topic := image.topic_by_id.get(topic_id)) is not None:
        return topic
    if topic_id is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, NOT_HERE)
    raise KafkaError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")


def decide_create_partitions(
    image: ClusterImage, config: BrokerConfig, topics: Sequence[MorePartitions], charge: Charge = free
) -> Slices[list[PartitionsOutcome]]:
    times = yield from times_named(topics, lambda topic: topic.name)
    more = yield from _more_wanted(image, topics, times)
    room, portion = _Room(image, config), Portion()
    outcomes: list[PartitionsOutcome] = []
    for wanted in topics:
        if portion.take():
            yield
        count, times[wanted.name] = times[wanted.name], 0
        try:
            if not count:
                continue  # refused already
            if count > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            record = yield from _add_partitions(image, wanted, more)
            yield from room.take(wanted.name, record.partitions)
            charge(len(record.partitions))
            outcomes.append(PartitionsOutcome(wanted.name, ErrorCode.none, None, record))
            if portion.take(TOPIC_WEIGHT + len(record.partitions)):
                yield
        except KafkaError as error:
            outcomes.append(PartitionsOutcome(wanted.name, error.code, error.message, None))
    return outcomes


def _more_wanted(
    image: ClusterImage, topics: Sequence[MorePartitions], times: Mapping[Hashable, int]
) -> Slices[int]:
    """By all topics together that are there, are named once, and may have so many."""
    more = 0
    for number, wanted in enumerate(topics, 1):
        if number % LOOKS_PER_SLICE == 0:
            yield
        topic = image.topics.get(wanted.name)
        if times[wanted.name] == 1 and topic is not None and wanted.partitions <= PARTITIONS_PER_TOPIC_MAX:
            more += max(0, wanted.partitions - len(topic.partitions))
    return more


def _add_partitions(image: ClusterImage, wanted: MorePartitions, more_in_all: int) -> Slices[PartitionsAdded]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    there = len(topic.partitions)
    _check_count(topic, wanted.partitions)
    if more_in_all > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(ErrorCode.policy_violation, TOO_MANY_PARTITIONS)
    more = wanted.partitions - there
    if wanted.assignments is None:
        brokers = image.registered.values()
        replicas = yield from placing(brokers, more, topic.replication_factor, first=image.partition_count)
    else:
        replicas = yield from _assigned(image, topic, more, wanted.assignments)
    states = yield from _led(image, replicas, there, is_manual=wanted.assignments is not None)
    return PartitionsAdded(topic.name, topic.topic_id, states)


def _check_count(topic: Topic, wanted: int) -> None:
    there = len(topic.partitions)
    if wanted == there:
        reason = f"Topic already has {there} partition(s)."
    elif wanted < there:
        reason = (
            f"The topic {topic.name} currently has {there} partition(s); {wanted} would not be an increase."
        )
    elif wanted > PARTITIONS_PER_TOPIC_MAX:
        reason = f"A topic may have {PARTITIONS_PER_TOPIC_MAX} partitions; {wanted} are too many."
    else:
        return
    raise KafkaError(ErrorCode.invalid_partitions, reason)


def _assigned(
    image: ClusterImage, topic: Topic, more: int, assignments: Sequence[tuple[int, ...]]
) -> Slices[list[tuple[int, ...]]]:
    if len(assignments) != more:
        raise _bad_assignment(
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) were "
            "specified."
        )
    portion = Portion()
    for replicas in assignments:
        check_manual_assignment(image.registered, replicas)
        if portion.take(1 + len(replicas) // REPLICAS_WEIGHING_1):
            yield
    _check_factors(assignments, topic.replication_factor)
    return list(assignments)
