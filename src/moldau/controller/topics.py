"""Decisions on topics: what CreateTopics, DeleteTopics and CreatePartitions may do, with Kafka's answers.
Pure.

Each decision takes the image as it is and says what happens to every topic asked for: a record to apply, or
an error with the text that Kafka gives. A request is decided as a whole: what one topic gets does not depend
on the others, except for names that are given twice, which are all refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.config.broker import BrokerConfig
from moldau.config.key import ConfigError
from moldau.config.topic import check_topic_overrides
from moldau.controller.names import check_topic_name
from moldau.controller.placement import check_manual_assignment, new_partition, place
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import (
    NOWHERE,
    PartitionsAdded,
    PartitionState,
    Position,
    TopicCreated,
    TopicDeleted,
)

T = TypeVar("T")

#: Kafka's bound on what one request may create.
PARTITIONS_PER_REQUEST_MAX = 10_000
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
_METADATA_TOPIC = "__cluster_metadata"
_DEFAULT = -1


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


def decide_create(
    image: ClusterImage, config: BrokerConfig, topics: Sequence[NewTopic], new_id: Callable[[], UUID]
) -> list[CreateOutcome]:
    return list(deciding_create(image, config, topics, new_id))


def deciding_create(
    image: ClusterImage, config: BrokerConfig, topics: Sequence[NewTopic], new_id: Callable[[], UUID]
) -> Iterator[CreateOutcome]:
    """The same, topic by topic: a request may have thousands. The image must not change meanwhile."""
    counts = Counter(topic.name for topic in topics)
    wanted = sum(_partitions_wanted(topic, config) for topic in topics if counts[topic.name] == 1)
    placed = image.partition_count
    for topic in _first_of_each(topics, lambda topic: topic.name):
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            if wanted > PARTITIONS_PER_REQUEST_MAX:
                raise KafkaError(ErrorCode.policy_violation, TOO_MANY_PARTITIONS)
            record = _create(image, config, topic, new_id, placed)
            placed += len(record.partitions)
            yield CreateOutcome(topic.name, ErrorCode.none, None, record)
        except KafkaError as error:
            yield CreateOutcome(topic.name, error.code, error.message, None)


def _partitions_wanted(topic: NewTopic, config: BrokerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    default: int = config["num.partitions"]
    return default if topic.partitions == _DEFAULT else max(0, topic.partitions)


def _create(
    image: ClusterImage, config: BrokerConfig, topic: NewTopic, new_id: Callable[[], UUID], placed: int
) -> TopicCreated:
    if topic.name == _METADATA_TOPIC:
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
        partitions = _led(image, _manual(image, topic), 0, is_manual=True)
    else:
        partitions = _led(image, _automatic(image, config, topic, placed), 0)
    return TopicCreated(topic.name, new_id(), partitions, configs)


def _led(
    image: ClusterImage, placed: Sequence[tuple[int, ...]], first: int, *, is_manual: bool = False
) -> tuple[PartitionState, ...]:
    """New partitions with their leaders; KafkaError where none of the replicas can lead."""
    active = {broker.id for broker in image.brokers.values() if broker.is_active}
    states = []
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
    return tuple(states)


def _checked_configs(config: BrokerConfig, given: Sequence[tuple[str, str | None]]) -> dict[str, str]:
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


def _manual(image: ClusterImage, topic: NewTopic) -> list[tuple[int, ...]]:
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
    for partition, replicas in topic.assignments:
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
) -> list[tuple[int, ...]]:
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
    return place(image.registered.values(), partitions, factor, first=placed)


def decide_delete(
    image: ClusterImage, topics: Sequence[TopicReference], *, deletion_enabled: bool
) -> list[DeleteOutcome]:
    names = Counter(topic.name for topic in topics if topic.name is not None)
    ids = Counter(topic.topic_id for topic in topics if topic.topic_id is not None)
    outcomes: dict[Hashable, DeleteOutcome] = {}
    for reference in _first_of_each(topics, lambda topic: topic):
        name, topic_id = reference
        try:
            if not deletion_enabled:
                raise KafkaError(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
            _check_reference(reference, names, ids)
            topic = _referenced(image, reference)
            name, topic_id = topic.name, topic.topic_id
            if names[name] == 1 and ids[topic_id] == 1:
                raise KafkaError(
                    ErrorCode.invalid_request,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            outcome = DeleteOutcome(name, topic_id, ErrorCode.none, None, TopicDeleted(name, topic.topic_id))
        except KafkaError as error:
            outcome = DeleteOutcome(name, topic_id, error.code, error.message, None)
        outcomes.setdefault((name, topic_id), outcome)
    return list(outcomes.values())


def _check_reference(reference: TopicReference, names: Mapping[str, int], ids: Mapping[UUID, int]) -> None:
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
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
        )
    raise KafkaError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")


def decide_create_partitions(
    image: ClusterImage, topics: Sequence[MorePartitions]
) -> list[PartitionsOutcome]:
    counts = Counter(topic.name for topic in topics)
    outcomes = []
    for topic in _first_of_each(topics, lambda topic: topic.name):
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            outcomes.append(
                PartitionsOutcome(topic.name, ErrorCode.none, None, _add_partitions(image, topic))
            )
        except KafkaError as error:
            outcomes.append(PartitionsOutcome(topic.name, error.code, error.message, None))
    return outcomes


def _add_partitions(image: ClusterImage, wanted: MorePartitions) -> PartitionsAdded:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    there = len(topic.partitions)
    if wanted.partitions == there:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {there} partition(s).")
    if wanted.partitions < there:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {there} partition(s); {wanted.partitions} would not be an increase.",
        )
    more = wanted.partitions - there
    if more > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(ErrorCode.policy_violation, TOO_MANY_PARTITIONS)
    if wanted.assignments is None:
        brokers = image.registered.values()
        states = _led(
            image, place(brokers, more, topic.replication_factor, first=image.partition_count), there
        )
    else:
        states = _led(image, _assigned(image, topic, more, wanted.assignments), there, is_manual=True)
    return PartitionsAdded(topic.name, topic.topic_id, states)


def _assigned(
    image: ClusterImage, topic: Topic, more: int, assignments: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    if len(assignments) != more:
        raise _bad_assignment(
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) were "
            "specified."
        )
    for replicas in assignments:
        check_manual_assignment(image.registered, replicas)
    _check_factors(assignments, topic.replication_factor)
    return list(assignments)


def _first_of_each(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """In order, without those whose key came before."""
    first: dict[Hashable, T] = {}
    for item in items:
        first.setdefault(key(item), item)
    return list(first.values())
