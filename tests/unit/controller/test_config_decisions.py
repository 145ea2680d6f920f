"""AlterConfigs and IncrementalAlterConfigs decide as Kafka does; the texts were taken from its answers."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.config.broker import BrokerConfig
from moldau.controller.configs import Alteration, Alterations, AlterOutcome, Operation, decide_alter
from moldau.controller.slices import whole
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    BrokerInfo,
    BrokerRegistered,
    ConfigChanged,
    ConfigResource,
    PartitionState,
    ResourceType,
    TopicCreated,
)

TOPIC, BROKER, GROUP, METRICS = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
)
SET, DELETE, APPEND, SUBTRACT = Operation.SET, Operation.DELETE, Operation.APPEND, Operation.SUBTRACT


@pytest.fixture
def image() -> ClusterImage:
    image = ClusterImage("cluster")
    image.apply(BrokerRegistered(BrokerInfo(1, {})))
    state = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    image.apply(TopicCreated("there", UUID(int=1), (state,), {"retention.ms": "5"}))
    image.apply(ConfigChanged(ConfigResource(GROUP, "g"), {"share.isolation.level": "read_committed"}))
    return image


def alter(image: ClusterImage, *resources: Alterations) -> list[AlterOutcome]:
    return whole(decide_alter(image, BrokerConfig.parse({}), resources))


def incremental(type_: int, name: str, *changes: tuple[str, int, str | None]) -> Alterations:
    return Alterations(type_, name, [Alteration(key, value, operation) for key, operation, value in changes])


REQUEST, CONFIG = ErrorCode.invalid_request, ErrorCode.invalid_config
UNKNOWN_DYNAMIC = "Cannot update these configs dynamically: [log.retention.hours, num.partitions]"


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (
            incremental(TOPIC, "", ("retention.ms", SET, "1")),
            REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            incremental(TOPIC, "absent", ("retention.ms", SET, "1")),
            ErrorCode.unknown_topic_or_partition,
            "The topic 'absent' does not exist.",
        ),
        (
            incremental(TOPIC, "a/b", ("retention.ms", SET, "1")),
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'",
        ),
        (incremental(TOPIC, "there", ("nope", SET, "1")), CONFIG, "Unknown topic config name: nope"),
        (
            incremental(TOPIC, "there", ("retention.ms", APPEND, "1")),
            CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            incremental(TOPIC, "there", ("nope", SUBTRACT, "1")),
            CONFIG,
            "Can't SUBTRACT to key nope because its type is not LIST.",
        ),
        (
            incremental(TOPIC, "there", ("retention.ms", SET, None), ("segment.ms", SET, None)),
            REQUEST,
            "Null value not supported for : retention.ms, segment.ms",
        ),
        (
            incremental(TOPIC, "there", ("retention.ms", SET, None), ("retention.ms", SET, None)),
            REQUEST,
            "Error due to duplicate config keys",
        ),
        (incremental(TOPIC, "there", ("retention.ms", 9, "1")), ErrorCode.unknown_server_error, None),
        (incremental(64, "x", ("a", SET, "1")), REQUEST, "Unknown resource type 64"),
        (
            incremental(BROKER, "abc", ("log.retention.ms", SET, "1")),
            REQUEST,
            "Node id must be an integer, but it is: abc",
        ),
        (
            incremental(BROKER, "7", ("log.retention.ms", SET, "1")),
            REQUEST,
            "Unexpected broker id, expected 1, but received 7",
        ),
        (
            incremental(BROKER, "1", ("log.retention.hours", SET, "1"), ("num.partitions", SET, "3")),
            REQUEST,
            UNKNOWN_DYNAMIC,
        ),
        (
            incremental(BROKER, "", ("ssl.protocol", SET, "x")),
            REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: [ssl.protocol]",
        ),
        (
            incremental(BROKER, "1", ("log.segment.bytes", SET, "5")),
            REQUEST,
            "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            incremental(BROKER, "", ("num.io.threads", SET, "many")),
            REQUEST,
            "Invalid value many for configuration num.io.threads: Not a number of type INT",
        ),
        (
            incremental(BROKER, "1", ("background.threads", SET, "0")),
            REQUEST,
            "Invalid value 0 for configuration background.threads: Value must be at least 1",
        ),
        (
            incremental(BROKER, "1", ("log.cleaner.min.cleanable.ratio", SET, "1e20")),
            REQUEST,
            "Invalid value 1.0E20 for configuration log.cleaner.min.cleanable.ratio: "
            "Value must be no more than 1",
        ),
        (
            incremental(BROKER, "", ("max.connections", SET, "0")),
            REQUEST,
            "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 "
            "for configuration Invalid dynamic configuration",
        ),
        (
            incremental(BROKER, "", ("max.connections.per.ip", SET, "0")),
            REQUEST,
            "requirement failed: max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set.",
        ),
        (
            incremental(BROKER, "", ("log.roll.ms", SET, "0")),
            REQUEST,
            "requirement failed: log.roll.ms must be greater than or equal to 1",
        ),
        (
            incremental(BROKER, "", ("log.roll.jitter.ms", SET, "-1")),
            REQUEST,
            "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
        ),
        (
            incremental(BROKER, "1", ("max.connection", SET, "5")),
            REQUEST,
            "unknown broker key 'max.connection': did you mean 'max.connections'?",
        ),
        (incremental(GROUP, "", ("a", SET, "1")), REQUEST, "Default group resources are not allowed."),
        (incremental(GROUP, "g", ("foo", SET, "1")), CONFIG, "Unknown group config name: foo"),
        (
            incremental(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")),
            CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            incremental(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "50000")),
            CONFIG,
            "consumer.heartbeat.interval.ms must be less than or equal to "
            "group.consumer.max.heartbeat.interval.ms",
        ),
        (incremental(METRICS, "", ("metrics", SET, "a")), REQUEST, "Subscription name can't be empty"),
        (incremental(METRICS, "m", ("foo", SET, "a")), REQUEST, "Unknown client metrics configuration: foo"),
        (
            incremental(METRICS, "m", ("interval.ms", SET, "50")),
            REQUEST,
            "Invalid value 50 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            incremental(METRICS, "m", ("match", SET, "client_id=[")),
            CONFIG,
            "Illegal client matching pattern: client_id=[",
        ),
    ],
)
def test_a_change_that_is_refused_gets_kafkas_answer(
    image: ClusterImage, asked: Alterations, code: ErrorCode, message: str | None
) -> None:
    (outcome,) = alter(image, asked)
    assert (outcome.error, outcome.message, outcome.record) == (code, message, None)


def settings(outcome: AlterOutcome) -> object:
    assert outcome.error is ErrorCode.none, outcome.message
    assert outcome.record is not None
    return outcome.record.configs


def test_set_and_delete_leave_the_other_settings_alone(image: ClusterImage) -> None:
    (outcome,) = alter(image, incremental(TOPIC, "there", ("flush.ms", SET, "7")))
    assert settings(outcome) == {"retention.ms": "5", "flush.ms": "7"}
    (outcome,) = alter(image, incremental(TOPIC, "there", ("retention.ms", DELETE, None)))
    assert settings(outcome) == {}


def test_a_list_that_is_not_set_starts_from_its_default(image: ClusterImage) -> None:
    (outcome,) = alter(image, incremental(TOPIC, "there", ("cleanup.policy", APPEND, "compact,delete")))
    assert settings(outcome) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    (outcome,) = alter(image, incremental(TOPIC, "there", ("cleanup.policy", SUBTRACT, "delete")))
    assert settings(outcome) == {"retention.ms": "5", "cleanup.policy": ""}


def test_the_older_request_replaces_everything(image: ClusterImage) -> None:
    asked = Alterations(TOPIC, "there", [Alteration("flush.ms", "7")], replace=True)
    (outcome,) = alter(image, asked)
    assert settings(outcome) == {"flush.ms": "7"}


def test_a_change_that_changes_nothing_leaves_no_record(image: ClusterImage) -> None:
    (outcome,) = alter(image, incremental(TOPIC, "there", ("retention.ms", SET, "5"), ("nope", DELETE, None)))
    assert (outcome.error, outcome.record) == (ErrorCode.none, None)


def test_a_brokers_settings_are_its_own_or_those_of_all(image: ClusterImage) -> None:
    own, default = alter(
        image,
        incremental(BROKER, "01", ("log.cleanup.policy", APPEND, "compact")),
        incremental(BROKER, "", ("log.retention.ms", SET, "1000")),
    )
    assert own.record is not None and own.record.resource == ConfigResource(BROKER, "1")
    assert settings(own) == {"log.cleanup.policy": "delete,compact"}
    assert default.record is not None and default.record.resource == ConfigResource(BROKER, "")


@pytest.mark.parametrize("broker", ["1", ""])
@pytest.mark.parametrize(
    "key",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_the_throttles_that_kafkas_reassignment_tool_sets_are_taken(
    image: ClusterImage, broker: str, key: str
) -> None:
    (outcome,) = alter(image, incremental(BROKER, broker, (key, SET, "10000000")))
    assert settings(outcome) == {key: "10000000"}


def test_a_resource_named_twice_is_refused_and_the_others_change(image: ClusterImage) -> None:
    change = ("consumer.session.timeout.ms", SET, "50000")
    outcomes = alter(
        image,
        incremental(GROUP, "a", change),
        incremental(GROUP, "a", change),
        incremental(GROUP, "b", change),
    )
    twice = "Each resource must appear at most once."
    assert [outcome.message for outcome in outcomes] == [twice, twice, None]
