"""A lower min.insync.replicas ends eligibility in the same write."""

from __future__ import annotations

import pytest

from moldau.config.broker import BrokerConfig
from moldau.controller.min_isr import decide_min_isr
from moldau.metadata.records import ConfigChanged, ConfigResource, PartitionState, ResourceType

from .small_cluster import changed_states, cluster

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
    states = changed_states([*decide_min_isr(image, config, [ConfigChanged(resource, configs)])])
    assert states == ({0: SHORT._replace(elr=(), partition_epoch=10)} if ends else {})
