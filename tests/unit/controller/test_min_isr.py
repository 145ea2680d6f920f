"""min.insync.replicas is one value for the cluster; a lower one ends eligibility in the same write."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.config.broker import BrokerConfig
from moldau.controller.configs import Alteration, Alterations, Operation, decide_alter
from moldau.controller.min_isr import decide_min_isr, decide_one_min_isr
from moldau.controller.slices import whole
from moldau.metadata.records import ConfigChanged, ConfigResource, PartitionState, ResourceType

from .small_cluster import changed_states, cluster, state_after

SHORT = PartitionState(leader=1, leader_epoch=4, replicas=(1, 2, 3), isr=(1,), partition_epoch=9, elr=(2,))
TWO = {"min.insync.replicas": "2"}
OF_TOPIC, OF_ALL = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "")


@pytest.mark.parametrize(
    ("own", "default", "resource", "configs", "ends"),
    [
        (TWO, {}, OF_TOPIC, {"min.insync.replicas": "1"}, True),
        (TWO, {}, OF_TOPIC, {}, True),
        (TWO, {}, OF_TOPIC, {"min.insync.replicas": "3"}, False),
        (TWO, {}, OF_TOPIC, {**TWO, "flush.ms": "7"}, False),
        ({}, TWO, OF_ALL, {"min.insync.replicas": "1"}, True),
        ({}, TWO, OF_ALL, {}, True),
        (TWO, TWO, OF_ALL, {"min.insync.replicas": "1"}, False),
        ({}, TWO, ConfigResource(ResourceType.GROUP, "g"), {"min.insync.replicas": "1"}, False),
    ],
)
def test_who_had_stayed_eligible_is_not_where_the_set_is_large_enough_now(
    own: dict[str, str],
    default: dict[str, str],
    resource: ConfigResource,
    configs: dict[str, str],
    ends: bool,
) -> None:
    image = cluster(SHORT, **{name.replace(".", "_"): value for name, value in own.items()})
    if default:
        image.apply(ConfigChanged(OF_ALL, default))
    config = BrokerConfig.parse({}).with_dynamic(default, {})
    states = changed_states(
        whole(decide_min_isr(image, config, [ConfigChanged(resource, configs)])).partitions
    )
    assert states == ({0: SHORT._replace(elr=(), partition_epoch=10)} if ends else {})


OF_ONE = ConfigResource(ResourceType.BROKER, "2")
NOBODY = SHORT._replace(leader=-1, isr=(), elr=(2, 3))


def test_a_cluster_without_a_value_gets_that_of_its_controllers_file() -> None:
    image = cluster()
    assert decide_one_min_isr(image, BrokerConfig.parse(TWO)) == [ConfigChanged(OF_ALL, TWO)]
    assert decide_one_min_isr(image, BrokerConfig.parse({})) == [
        ConfigChanged(OF_ALL, {"min.insync.replicas": "1"})
    ]


def test_a_cluster_that_has_a_value_keeps_it_whatever_files_say() -> None:
    image = cluster(SHORT)
    image.apply(ConfigChanged(OF_ALL, TWO))
    assert decide_one_min_isr(image, BrokerConfig.parse({"min.insync.replicas": "3"})) == []


def test_values_of_single_brokers_go_and_their_other_settings_stay() -> None:
    image = cluster()
    image.apply(ConfigChanged(OF_ALL, {"log.retention.ms": "9"}))
    image.apply(ConfigChanged(OF_ONE, {**TWO, "log.cleaner.threads": "2"}))
    assert decide_one_min_isr(image, BrokerConfig.parse({})) == [
        ConfigChanged(OF_ALL, {"log.retention.ms": "9", "min.insync.replicas": "1"}),
        ConfigChanged(OF_ONE, {"log.cleaner.threads": "2"}),
    ]


@pytest.mark.parametrize(
    ("state", "own", "elr"),
    [(SHORT, {}, ()), (NOBODY, {}, (2, 3)), (SHORT, TWO, (2,))],
    ids=["somebody is in sync", "nobody is in sync", "the topic has a value of its own"],
)
def test_who_was_kept_eligible_by_who_knows_which_value_is_not_any_more(
    state: PartitionState, own: dict[str, str], elr: tuple[int, ...]
) -> None:
    image = cluster(state, fenced=(2, 3), **{name.replace(".", "_"): value for name, value in own.items()})
    assert state_after(image, decide_one_min_isr(image, BrokerConfig.parse(TWO))).elr == elr


@pytest.mark.parametrize(
    ("name", "changes", "replace", "refusal"),
    [
        ("2", [Alteration("min.insync.replicas", "2")], False, "Broker-level"),
        ("2", [Alteration("min.insync.replicas", None, Operation.DELETE)], False, "Broker-level"),
        ("2", [Alteration("min.insync.replicas", "2")], True, "Broker-level"),
        ("2", [], True, None),
        ("", [Alteration("min.insync.replicas", None, Operation.DELETE)], False, "Cluster-level"),
        ("", [Alteration("log.retention.ms", "7")], True, "Cluster-level"),
        ("", [], True, "Cluster-level"),
        ("", [Alteration("min.insync.replicas", "3")], False, None),
        ("", [Alteration("min.insync.replicas", "3")], True, None),
        ("", [Alteration("log.retention.ms", "7")], False, None),
    ],
)
def test_a_value_of_one_broker_and_no_value_at_all_are_refused(
    name: str, changes: list[Alteration], replace: bool, refusal: str | None
) -> None:
    image = cluster()
    image.apply(ConfigChanged(OF_ALL, TWO))
    asked = Alterations(ResourceType.BROKER, name, changes, replace)
    (outcome,) = whole(decide_alter(image, BrokerConfig.parse({}).with_dynamic(TWO, {}), [asked]))
    verb = {"Broker-level": "altered", "Cluster-level": "removed"}
    text = refusal and f"{refusal} min.insync.replicas cannot be {verb[refusal]} while ELR is enabled."
    assert (outcome.error, outcome.message) == (
        ErrorCode.invalid_config if refusal else ErrorCode.none,
        text,
    )
