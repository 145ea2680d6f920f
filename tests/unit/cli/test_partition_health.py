"""What is said of partitions that are not well."""

from __future__ import annotations

import pytest

from moldau.cli.findings import Status
from moldau.cli.partition_health import PartitionView, findings

WELL = PartitionView("orders", 0, 1, (1, 2, 3), (1, 2, 3), 2)


@pytest.mark.parametrize(
    ("partition", "state"),
    [
        (WELL, "ok"),
        (WELL._replace(isr=(1, 2)), "under-replicated"),
        (WELL._replace(isr=(1,)), "under min ISR"),
        (WELL._replace(leader=None, isr=(1,)), "offline"),
        (WELL._replace(replicas=(1,), isr=(1,)), "ok"),
        (WELL._replace(isr=(2, 3, 4), leader=2, replicas=(1, 2, 3)), "under-replicated"),
        (WELL._replace(isr=(3, 2, 1)), "ok"),
    ],
)
def test_the_worst_is_said_of_a_partition(partition: PartitionView, state: str) -> None:
    assert partition.state == state


def test_each_trouble_is_told_once_with_partitions_brokers_and_what_to_do() -> None:
    found = list(
        findings(
            [
                WELL,
                WELL._replace(partition=1, isr=(1, 3)),
                WELL._replace(partition=2, isr=(1,)),
                WELL._replace(partition=3, leader=None),
            ]
        )
    )
    assert [finding.status for finding in found] == [Status.PROBLEM, Status.PROBLEM, Status.WARNING]
    offline, under, lagging = found
    assert "orders-3" in offline.text and "brokers 1, 2, 3" in offline.advice
    assert "orders-2" in under.text and "acks=all" in under.text and "brokers 2, 3" in under.advice
    assert lagging.text == "1 partition (orders-1) under-replicated: not in sync on broker 2"
    assert all(finding.advice for finding in found)


def test_all_is_well_and_a_leader_elsewhere_is_a_remark() -> None:
    assert [finding.status for finding in findings([WELL])] == [Status.OK]
    assert [finding.status for finding in findings([WELL._replace(leader=2)])] == [Status.OK, Status.NOTE]
    assert list(findings([])) == []
