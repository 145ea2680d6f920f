"""New partitions are spread evenly, and over racks; who is fenced leads nothing."""

from __future__ import annotations

import pytest

from moldau.base.errors import KafkaError
from moldau.controller.placement import place
from moldau.metadata.records import BrokerInfo


def brokers(
    *racks: str | None, fenced: tuple[int, ...] = (), leaving: tuple[int, ...] = ()
) -> list[BrokerInfo]:
    return [
        BrokerInfo(id_, {}, rack, is_fenced=id_ in fenced, is_shutting_down=id_ in leaving)
        for id_, rack in enumerate(racks, 1)
    ]


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize("first", [0, 1, 17])
def test_replicas_and_leaders_are_spread_evenly_over_distinct_brokers(count: int, first: int) -> None:
    nodes = brokers(*[None] * count)
    ids = [node.id for node in nodes]
    for factor in range(1, count + 1):
        placed = place(nodes, partitions=count * 6, replication_factor=factor, first=first)
        assert all(len(set(replicas)) == factor for replicas in placed)
        leaders = [replicas[0] for replicas in placed]
        assert {leaders.count(broker) for broker in ids} == {6}
        held = [broker for replicas in placed for broker in replicas]
        assert max(map(held.count, ids)) - min(map(held.count, ids)) <= factor


@pytest.mark.parametrize(
    "racks",
    [("a", "b", "c"), ("a", "a", "b", "b", "c", "c"), ("a", "a", "a", "b"), ("a", "b", "b", "c", "c", "c")],
)
def test_no_rack_has_two_replicas_while_another_has_none(racks: tuple[str, ...]) -> None:
    nodes = brokers(*racks)
    rack_of = {node.id: node.rack for node in nodes}
    for factor in range(1, len(nodes) + 1):
        placed = place(nodes, 60, factor, 0)
        for replicas in placed:
            assert len(set(replicas)) == factor
            assert len({rack_of[replica] for replica in replicas}) == min(factor, len(set(racks)))
        leaders = [replicas[0] for replicas in placed]
        counts = [leaders.count(node.id) for node in nodes]
        assert max(counts) - min(counts) <= 1


def test_followers_are_even_where_racks_are() -> None:
    placed = place(brokers("a", "a", "b", "b", "c", "c"), 180, 3, 0)
    held = [broker for replicas in placed for broker in replicas]
    counts = [held.count(id_) for id_ in range(1, 7)]
    assert max(counts) - min(counts) <= 6, counts


def test_a_fenced_broker_comes_last_and_never_leads() -> None:
    placed = place(brokers(None, None, None, fenced=(2,)), 30, 2, 0)
    assert all(2 not in replicas for replicas in placed)
    placed = place(brokers(None, None, None, fenced=(2,)), 30, 3, 0)
    assert all(replicas[-1] == 2 for replicas in placed)


def test_a_rack_with_a_fenced_broker_alone_still_counts() -> None:
    placed = place(brokers("a", "a", "b", fenced=(3,)), 10, 2, 0)
    assert all(replicas[1] == 3 for replicas in placed)


def test_a_broker_that_shuts_down_gets_nothing() -> None:
    placed = place(brokers(None, None, None, leaving=(1,)), 30, 2, 0)
    assert all(1 not in replicas for replicas in placed)
    with pytest.raises(KafkaError, match="only 2 broker"):
        place(brokers(None, None, None, leaving=(1,)), 1, 3, 0)


def test_a_broker_that_has_shut_down_gets_replicas_as_any_that_is_fenced() -> None:
    (replicas,) = place(brokers(None, None, None, fenced=(1,), leaving=(1,)), 1, 3, 0)
    assert sorted(replicas) == [1, 2, 3] and replicas[0] != 1


def test_where_all_are_fenced_nothing_is_placed() -> None:
    with pytest.raises(KafkaError, match="All brokers are currently fenced"):
        place(brokers(None, None, fenced=(1, 2)), 1, 1, 0)
