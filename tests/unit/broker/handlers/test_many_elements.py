"""Requests of groups with more elements than one step of the coordinator has: all are served, in several steps."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker import paced
from moldau.broker.handlers import leave_group, offset_commit, txn_offset_commit
from moldau.coordinator.group import shard
from moldau.coordinator.group.shard import GroupShard
from moldau.testing import Cluster

from .test_groups import Wire

STEP = 20
PARTITIONS = 2 * STEP + 10
GROUP = "many"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"wide": PARTITIONS}) as running:
        yield running


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (paced, leave_group, offset_commit, shard):
        monkeypatch.setattr(module, "COORDINATOR_ELEMENTS_PER_STEP", STEP)


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    wire = Wire(cluster.bootstrap_servers)
    while wire.ask("FindCoordinator", 2, key=GROUP, key_type=0).error_code:
        pass
    yield wire
    wire.close()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """How many elements each step had, by what the coordinator was asked for."""
    found: dict[str, list[int]] = {}

    def watch(name: str, elements: Any) -> None:
        plain = getattr(GroupShard, name)

        def watched(one: GroupShard, *args: Any, **options: Any) -> Any:
            found.setdefault(name, []).append(len(elements(*args)))
            return plain(one, *args, **options)

        monkeypatch.setattr(GroupShard, name, watched)

    watch("commit", lambda commit, *_: commit.offsets)
    watch("fetch", lambda _group_id, wanted, *_: wanted)
    watch("delete_offsets", lambda _group_id, wanted, *_: wanted)
    watch("leave", lambda _group_id, leavers, *_: leavers)
    return found


def expected(count: int) -> list[int]:
    return [STEP] * (count // STEP) + [count % STEP]


def test_offsets_of_many_partitions_are_committed_fetched_and_deleted_in_steps(
    wire: Wire, steps: dict[str, list[int]]
) -> None:
    rows = tuple(
        SimpleNamespace(
            partition_index=index,
            committed_offset=index,
            committed_leader_epoch=-1,
            committed_metadata=None,
        )
        for index in range(PARTITIONS + 1)
    )
    committed = wire.ask(
        "OffsetCommit",
        8,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(SimpleNamespace(name="wide", partitions=rows),),
    )
    errors = {row.partition_index: row.error_code for row in committed.topics[0].partitions}
    assert errors == dict.fromkeys(range(PARTITIONS), 0) | {PARTITIONS: 3}
    assert steps.pop("commit") == expected(PARTITIONS)

    named = (SimpleNamespace(name="wide", partition_indexes=tuple(range(PARTITIONS))),)
    for topics in (None, named):
        answer = wire.ask(
            "OffsetFetch",
            8,
            groups=(SimpleNamespace(group_id=GROUP, topics=topics),),
            require_stable=True,
        )
        found = {row.partition_index: row.committed_offset for row in answer.groups[0].topics[0].partitions}
        assert found == {index: index for index in range(PARTITIONS)}
        assert steps.pop("fetch") == expected(PARTITIONS)

    gone = wire.ask(
        "OffsetDelete",
        0,
        group_id=GROUP,
        topics=(SimpleNamespace(name="wide", partitions=rows[:-1]),),
    )
    assert gone.error_code == 0
    assert {row.error_code for row in gone.topics[0].partitions} == {0}
    assert steps.pop("delete_offsets") == expected(PARTITIONS)
    left = wire.ask(
        "OffsetFetch", 8, groups=(SimpleNamespace(group_id=GROUP, topics=None),), require_stable=True
    )
    assert left.groups[0].topics == ()


def test_a_group_with_many_offsets_is_deleted_whole(wire: Wire) -> None:
    row = SimpleNamespace(committed_offset=1, committed_leader_epoch=-1, committed_metadata=None)
    wire.ask(
        "OffsetCommit",
        8,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(
            SimpleNamespace(
                name="wide",
                partitions=tuple(
                    SimpleNamespace(partition_index=index, **vars(row)) for index in range(PARTITIONS)
                ),
            ),
        ),
    )
    answer = wire.ask("DeleteGroups", 1, groups_names=(GROUP, GROUP))

    assert [(one.group_id, one.error_code) for one in answer.results] == [(GROUP, 0)]
    assert GROUP not in [one.group_id for one in wire.ask("ListGroups", 0).groups]


def test_many_members_leave_in_steps(wire: Wire, steps: dict[str, list[int]]) -> None:
    members = tuple(
        SimpleNamespace(member_id=f"m{number}", group_instance_id=None) for number in range(PARTITIONS)
    )
    answer = wire.ask("LeaveGroup", 3, group_id="unknown", members=members)

    assert answer.error_code == 0
    assert [one.member_id for one in answer.members] == [one.member_id for one in members]
    assert steps["leave"] == expected(PARTITIONS)


def test_each_step_of_a_commit_in_a_transaction_is_verified(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction may end between two of them: what came then would hang for ever."""
    verified: list[int] = []

    async def verify(*_: Any) -> None:
        verified.append(len(verified))
        if len(verified) > 2:
            raise KafkaError(ErrorCode.invalid_txn_state)

    monkeypatch.setattr(txn_offset_commit, "_verify", verify)
    row = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": None}
    rows = tuple(SimpleNamespace(partition_index=index, **row) for index in range(PARTITIONS))
    answer = wire.ask(
        "TxnOffsetCommit",
        3,
        transactional_id="tx",
        group_id=GROUP,
        producer_id=7,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=(SimpleNamespace(name="wide", partitions=rows),),
    )
    errors = [one.error_code for one in answer.topics[0].partitions]
    assert errors == [ErrorCode.none] * 2 * STEP + [ErrorCode.invalid_txn_state] * (PARTITIONS - 2 * STEP)
