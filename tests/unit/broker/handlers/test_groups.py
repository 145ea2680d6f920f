"""The APIs of groups over a connection: the parts that do not need a foreign client to be seen."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.handlers.consumer_group_heartbeat import owned_partitions
from moldau.testing import Cluster
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import decode_response, encode_request_frame
from moldau.wire.frames import parse_response_header

SIZE = struct.Struct(">i")
TIMEOUT_S = 20
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 2}) as running:
        yield running


class Wire:
    """One connection; `send` and `receive` apart, for requests that wait."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rb")
        self._sent: list[tuple[int, int]] = []

    def send(self, api: str, version: int, **fields: Any) -> None:
        key = APIS_BY_NAME[api].key
        self._sent.append((key, version))
        self._socket.sendall(
            encode_request_frame(key, version, len(self._sent), "c", SimpleNamespace(**fields))
        )

    def receive(self) -> Any:
        key, version = self._sent.pop(0)
        (size,) = SIZE.unpack(self._file.read(SIZE.size))
        frame = memoryview(self._file.read(size))
        _, position = parse_response_header(frame, key, version)
        return decode_response(key, version, frame, position)

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        self.send(api, version, **fields)
        return self.receive()

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def wires(cluster: Cluster) -> Iterator[Callable[[], Wire]]:
    made: list[Wire] = []

    def connect() -> Wire:
        made.append(Wire(cluster.bootstrap_servers))
        return made[-1]

    found = connect().ask("FindCoordinator", 4, key_type=0, coordinator_keys=("g",))
    assert found.coordinators[0].error_code is ErrorCode.none
    yield connect
    for wire in made:
        wire.close()


def join(group: str, member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": (SimpleNamespace(name="range", metadata=b""),),
        "reason": None,
    }


def until_rebalancing(wire: Wire, group: str) -> None:
    """What another connection has sent was taken up."""
    while True:
        (found,) = wire.ask("DescribeGroups", 5, groups=(group,), include_authorized_operations=False).groups
        if found.group_state == "PreparingRebalance":
            return


def test_a_join_waits_for_the_others_without_holding_them_up(wires: Callable[[], Wire]) -> None:
    first, second = wires(), wires()
    leader = first.ask("JoinGroup", 3, **join("waiting"))
    sync = {"group_id": "waiting", "generation_id": 1, "group_instance_id": None}
    first.ask("SyncGroup", 3, member_id=leader.member_id, assignments=(), **sync)

    second.send("JoinGroup", 3, **join("waiting"))
    beat = {
        "group_id": "waiting",
        "generation_id": 1,
        "member_id": leader.member_id,
        "group_instance_id": None,
    }
    while first.ask("Heartbeat", 3, **beat).error_code is ErrorCode.none:
        pass
    again = first.ask("JoinGroup", 3, **join("waiting", leader.member_id))
    assert again.generation_id == second.receive().generation_id == 2
    assert len(again.members) == 2


def test_an_answer_keeps_its_place_behind_one_that_waits(wires: Callable[[], Wire]) -> None:
    first, second = wires(), wires()
    leader = first.ask("JoinGroup", 3, **join("ordered"))
    second.send("JoinGroup", 3, **join("ordered"))
    second.send("ListGroups", 4, states_filter=())
    until_rebalancing(first, "ordered")
    first.send("LeaveGroup", 1, group_id="ordered", member_id=leader.member_id)

    assert first.receive().error_code is ErrorCode.none
    assert second.receive().generation_id == 2  # the join's answer comes before the list
    assert "ordered" in {group.group_id for group in second.receive().groups}


@pytest.mark.parametrize("version", [5, 6, 9])
def test_a_group_id_that_cannot_be_recorded_is_refused(wires: Callable[[], Wire], version: int) -> None:
    longest = "x" * 32_767
    wire = wires()
    if version >= 6:  # older versions cannot even say it
        refused = wire.ask("JoinGroup", version, **join(longest + "x"))
        assert refused.error_code is ErrorCode.invalid_group_id
    assert wire.ask("JoinGroup", version, **join("")).error_code is ErrorCode.invalid_group_id
    assert wire.ask("JoinGroup", version, **join(longest)).error_code is ErrorCode.member_id_required


def test_a_client_that_goes_away_while_it_waits_harms_nobody(wires: Callable[[], Wire]) -> None:
    first, second = wires(), wires()
    leader = first.ask("JoinGroup", 3, **join("gone"))
    second.send("JoinGroup", 3, **join("gone"))
    until_rebalancing(first, "gone")
    second.close()
    first.send("JoinGroup", 3, **join("gone", leader.member_id))

    assert first.receive().generation_id == 2
    assert wires().ask("ListGroups", 4, states_filter=()).error_code is ErrorCode.none


def test_groups_are_listed_by_state_whatever_blanks_are_around_it(wires: Callable[[], Wire]) -> None:
    wire = wires()
    joined = wire.ask("JoinGroup", 3, **join("listed"))
    assert joined.error_code is ErrorCode.none
    found = wire.ask("ListGroups", 4, states_filter=(" CompletingRebalance ",))
    assert "listed" in {group.group_id for group in found.groups}


def test_a_topic_that_a_member_names_twice_counts_with_all_its_partitions() -> None:
    """Otherwise a partition that it has would be given to another."""
    topic, other = UUID(int=1), UUID(int=2)
    rows = [(topic, (0, 2)), (other, (1,)), (topic, (3,)), (other, ())]
    owned = owned_partitions(SimpleNamespace(topic_id=one, partitions=numbers) for one, numbers in rows)
    assert owned == {topic: {0, 2, 3}, other: {1}}
