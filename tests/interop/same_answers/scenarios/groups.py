"""Classic groups: joining, syncing, heartbeats, leaving, static members, and how groups are shown and deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..conversation import Conversation, scenario
from ..peers import Both

CONSUMER = "consumer"
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x05topic\xff\xff\xff\xff\x00\x00\x00\x00"
RANGE = {"name": "range", "metadata": SUBSCRIPTION}
ROUND_ROBIN = {"name": "roundrobin", "metadata": b"other"}
INSTANCES_FROM = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "LeaveGroup": 3, "OffsetCommit": 7}
NEWEST = {"JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 5, "DescribeGroups": 6}


class Member:
    """A member on both brokers, with connections of its own; every API in the newest version but the tested one."""

    def __init__(self, talk: Conversation, group: str, instance: str | None = None) -> None:
        self.talk = talk
        self.group = group
        self.instance = instance
        self.id: Both | str = ""
        self.generation: Both | int = -1
        self.protocol: Both | str | None = None

    def version_of(self, api: str) -> int:
        return self.talk.version if api == self.talk.api else NEWEST[api]

    def _fields(self, api: str, **values: Any) -> dict[str, Any]:
        fields = {"group_id": self.group, "member_id": self.id, **values}
        if self.instance is not None and self.version_of(api) >= INSTANCES_FROM[api]:
            fields["group_instance_id"] = self.instance
        return fields

    # Joining

    def join_request(self, protocols: Sequence[Any] = (RANGE,), **values: Any) -> dict[str, Any]:
        fields = {
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "protocol_type": CONSUMER,
            "protocols": list(protocols),
        }
        return self._fields("JoinGroup", **(fields | values))

    def begin_join(self, protocols: Sequence[Any] = (RANGE,), **values: Any) -> None:
        self.talk.begin(
            self.join_request(protocols, **values), api="JoinGroup", version=self.version_of("JoinGroup")
        )

    def end_join(self, case: str) -> Both:
        answers = self.talk.end(
            f"{self.talk.api}: {case}",
            api="JoinGroup",
            version=self.version_of("JoinGroup"),
            adjust=by_member,
        )
        self._learn(answers)
        return answers

    def join(self, case: str, protocols: Sequence[Any] = (RANGE,), **values: Any) -> Both:
        self.begin_join(protocols, **values)
        return self.end_join(case)

    def enter(self, case: str, protocols: Sequence[Any] = (RANGE,), **values: Any) -> None:
        """Join until the answer is there; where an id is required, with it."""
        self.begin_enter(case, protocols, **values)
        self.end_join(f"{case}, joined")

    def begin_enter(self, case: str, protocols: Sequence[Any] = (RANGE,), **values: Any) -> None:
        if self.id == "" and self.instance is None and self.version_of("JoinGroup") >= 4:
            self.join(f"{case}, for an id", protocols, **values)
        self.begin_join(protocols, **values)

    def _learn(self, answers: Both) -> None:
        if isinstance(answers.kafka, str):
            return
        self.id = answers.map(lambda answer: answer.member_id)
        self.generation = answers.map(lambda answer: answer.generation_id)
        self.protocol = answers.map(lambda answer: answer.protocol_name)

    # The rest

    def sync_request(self, assignments: Sequence[tuple[Any, bytes]] = (), **values: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"generation_id": self.generation}
        if self.version_of("SyncGroup") >= 5:
            fields |= {"protocol_type": CONSUMER, "protocol_name": self.protocol}
        fields["assignments"] = [{"member_id": member, "assignment": data} for member, data in assignments]
        return self._fields("SyncGroup", **(fields | values))

    def begin_sync(self, assignments: Sequence[tuple[Any, bytes]] = (), **values: Any) -> None:
        self.talk.begin(
            self.sync_request(assignments, **values), api="SyncGroup", version=self.version_of("SyncGroup")
        )

    def end_sync(self, case: str) -> Both:
        return self.talk.end(
            f"{self.talk.api}: {case}", api="SyncGroup", version=self.version_of("SyncGroup")
        )

    def sync(self, case: str, assignments: Sequence[tuple[Any, bytes]] = (), **values: Any) -> Both:
        self.begin_sync(assignments, **values)
        return self.end_sync(case)

    def heartbeat(self, case: str, **values: Any) -> Both:
        fields = self._fields("Heartbeat", generation_id=self.generation, **values)
        version = self.version_of("Heartbeat")
        return self.talk.ask(f"{self.talk.api}: {case}", fields, api="Heartbeat", version=version)

    def leave(self, case: str) -> Both:
        version = self.version_of("LeaveGroup")
        values: dict[str, Any] = {"group_id": self.group, "member_id": self.id}
        if version >= 3:
            values = {
                "group_id": self.group,
                "members": [{"member_id": self.id, "group_instance_id": self.instance}],
            }
        return self.talk.ask(f"{self.talk.api}: {case}", values, api="LeaveGroup", version=version)

    def describe(self, case: str) -> None:
        self.talk.ask(
            f"{self.talk.api}: {case}",
            {"groups": [self.group]},
            api="DescribeGroups",
            version=self.version_of("DescribeGroups"),
            adjust=sorted_members,
        )


def by_member(tree: Any) -> Any:
    """Members come in no order that means something."""
    return tree | {"members": sorted(tree["members"], key=str)}


def sorted_members(tree: Any) -> Any:
    for group in tree["groups"]:
        group["members"].sort(key=str)
    return tree


@contextmanager
def members(talk: Conversation, group: str, count: int) -> Iterator[list[Member]]:
    """Members with connections of their own: requests wait while others go on."""
    if count == 0:
        yield []
        return
    with talk.beside() as other, members(talk, group, count - 1) as rest:
        yield [Member(other, group), *rest]


@contextmanager
def stable(talk: Conversation, group: str, count: int = 1) -> Iterator[list[Member]]:
    """A group whose members have their assignments; the first member leads."""
    with members(talk, group, count) as present:
        present[0].enter("the first enters")
        present[0].sync("the first is assigned", [(present[0].id, b"all")])
        for number, member in enumerate(present[1:], start=2):
            member.begin_enter(f"member {number} enters")
            settle()
            for other in present[: number - 1]:
                other.begin_join()
            for other in present[:number]:
                other.end_join(f"{number} are joined")
            for other in present[1:number]:
                other.begin_sync()
            rows = [(other.id, b"part of %d" % index) for index, other in enumerate(present[:number])]
            present[0].begin_sync(rows)
            for other in present[:number]:
                other.end_sync(f"{number} are synced")
        yield present


def settle() -> None:
    """Until both have taken up what was sent on another connection."""
    time.sleep(0.2)


# ---- joining ------------------------------------------------------------------------------------------------


@scenario("JoinGroup", "alone")
def join_alone(talk: Conversation) -> None:
    member = Member(talk, talk.name("g"))
    member.describe("before")
    member.enter("a new group", [RANGE, ROUND_ROBIN])
    member.describe("completing")
    member.join("again with the same", [RANGE, ROUND_ROBIN])
    member.sync("the leader's", [(member.id, b"all")])
    member.describe("stable")
    member.join("the leader again", [RANGE, ROUND_ROBIN])
    member.join("with other metadata", [{"name": "range", "metadata": b"new"}])
    member.sync("without assignments")
    member.describe("stable without assignments")
    member.leave("the last one")
    member.describe("empty")
    member.join("after it left")
    fresh = Member(talk, talk.name("g"))
    fresh.enter("a second life", protocol_type="connect")


@scenario("JoinGroup", "refused")
def join_refused(talk: Conversation) -> None:
    def ask(case: str, **values: Any) -> None:
        talk.ask(case, Member(talk, talk.name("g")).join_request(**values))

    ask("no group id", group_id="")
    ask("a session too short", session_timeout=5_999)
    ask("a session too long", session_timeout=1_800_001)
    ask("a member of a group that is not there", member_id="nobody")
    ask("no protocol", protocols=[])
    ask("no protocol type", protocol_type="")
    if talk.version >= 5:
        ask("a static member of a group that is not there", member_id="nobody", group_instance_id="one")
    with stable(talk, talk.name("taken")) as (member,):
        ask("an unknown member", group_id=member.group, member_id="nobody")
        ask("another type", group_id=member.group, protocol_type="connect")
        ask("another protocol", group_id=member.group, protocols=[ROUND_ROBIN])
        member.join("itself with another protocol", [ROUND_ROBIN])
        member.describe("after all of it")


@scenario("JoinGroup", "two members")
def join_two(talk: Conversation) -> None:
    with stable(talk, talk.name("g"), 2) as (leader, follower):
        leader.describe("two")
        follower.join("the follower again")
        follower.sync("the follower again")
        leader.begin_join()
        settle()
        follower.heartbeat("while the leader joins")
        follower.sync("while the leader joins")
        follower.describe("while the leader joins")
        follower.begin_join([RANGE, ROUND_ROBIN])
        leader.end_join("the leader, both joined")
        follower.end_join("the follower, both joined")
        follower.begin_sync()
        settle()
        leader.leave("before it assigned")
        follower.end_sync("the leader left")
        follower.join("alone")
        follower.sync("alone", [(follower.id, b"all")])
        follower.describe("alone")


@scenario("JoinGroup", "static members", versions=range(5, 10))
def join_static(talk: Conversation) -> None:
    group = talk.name("g")
    with talk.beside() as one, talk.beside() as two:
        first, second = Member(one, group, "instance"), Member(two, group, "instance")
        first.enter("the first")
        first.sync("the first", [(first.id, b"all")])
        second.join("the second instance")
        first.heartbeat("fenced")
        first.sync("fenced")
        first.join("fenced")
        first.leave("fenced")
        second.heartbeat("in its place")
        second.sync("in its place")
        second.describe("in its place")
        stranger = Member(two, group, "instance")
        stranger.id = "stranger"
        stranger.join("a stranger with the instance id")
        stranger.heartbeat("a stranger with the instance id")
        third = Member(two, group, "instance")
        third.join("with other metadata", [{"name": "range", "metadata": b"new"}])
        third.sync("with other metadata", [(third.id, b"again")])
        third.describe("with other metadata")


@scenario("JoinGroup", "a static member while others wait", versions=range(5, 10))
def join_static_waiting(talk: Conversation) -> None:
    group = talk.name("g")
    with talk.beside() as one, talk.beside() as two, talk.beside() as three:
        leader, old, new = (
            Member(one, group),
            Member(two, group, "instance"),
            Member(three, group, "instance"),
        )
        leader.enter("the leader")
        leader.sync("the leader", [(leader.id, b"all")])
        old.begin_join()
        settle()
        new.begin_join()
        old.end_join("fenced while it waits")
        leader.join("the leader again")
        new.end_join("in its place")


# ---- syncing, heartbeats, leaving ---------------------------------------------------------------------------


@scenario("SyncGroup", "answers")
def sync(talk: Conversation) -> None:
    stranger = Member(talk, talk.name("missing"))
    stranger.generation, stranger.protocol, stranger.id = 1, "range", "nobody"
    stranger.sync("a group that is not there")
    stranger.sync("no group id", group_id="")
    member = Member(talk, talk.name("g"))
    member.enter("one")
    member.sync("another generation", generation_id=9)
    member.sync("a generation of -1", generation_id=-1)
    member.sync("nobody", member_id="nobody")
    member.sync("no member id", member_id="")
    if talk.version >= 5:
        member.sync("another type", protocol_type="connect")
        member.sync("another protocol", protocol_name="roundrobin")
        member.sync("no type", protocol_type=None)
        member.sync("no protocol", protocol_name=None)
    if talk.version >= 3:
        member.sync("an instance that is not there", group_instance_id="one")
    member.sync("an assignment for itself and a stranger", [(member.id, b"mine"), ("nobody", b"?")])
    member.sync("again, as a follower would")
    member.sync("again, with another assignment", [(member.id, b"other")])
    member.describe("as it was")
    member.leave("goes")
    member.sync("after it left")


@scenario("Heartbeat", "answers")
def heartbeat(talk: Conversation) -> None:
    stranger = Member(talk, talk.name("missing"))
    stranger.id, stranger.generation = "nobody", 1
    stranger.heartbeat("a group that is not there")
    stranger.heartbeat("no group id", group_id="")
    member = Member(talk, talk.name("g"))
    member.enter("one")
    member.heartbeat("before it has synced")
    member.sync("synced", [(member.id, b"all")])
    member.heartbeat("stable")
    member.heartbeat("nobody", member_id="nobody")
    member.heartbeat("no member id", member_id="")
    if talk.version >= 3:
        member.heartbeat("an instance that is not there", group_instance_id="one")
    generation = member.generation
    member.generation = 9
    member.heartbeat("another generation")
    member.generation = generation
    member.leave("goes")
    member.heartbeat("after it left")


@scenario("LeaveGroup", "answers")
def leave(talk: Conversation) -> None:
    group = talk.name("g")
    stranger = Member(talk, talk.name("missing"))
    stranger.id = "nobody"
    stranger.leave("a group that is not there")
    stranger.group = ""
    stranger.leave("no group id")
    with stable(talk, group, 2) as (leader, follower):
        stranger.group = group
        stranger.leave("nobody")
        stranger.id = ""
        stranger.leave("no member id")
        follower.leave("the follower")
        leader.heartbeat("the follower is gone")
        leader.describe("the follower is gone")
        leader.join("alone")
        leader.sync("alone", [(leader.id, b"all")])
        leader.leave("the leader")
        leader.leave("twice")
        leader.describe("nobody is left")


@scenario("LeaveGroup", "several", versions=range(3, 6))
def leave_several(talk: Conversation) -> None:
    group = talk.name("g")

    def ask(case: str, *leavers: dict[str, Any]) -> None:
        talk.ask(case, {"group_id": group, "members": list(leavers)})

    with talk.beside() as one, talk.beside() as two:
        leader, static = Member(one, group), Member(two, group, "instance")
        leader.enter("one")
        static.begin_join()
        settle()
        leader.begin_join()
        leader.end_join("both")
        static.end_join("both")
        ask("nobody at all")
        ask("an instance that is not there", {"member_id": "", "group_instance_id": "other"})
        ask("another id for the instance", {"member_id": "nobody", "group_instance_id": "instance"})
        ask("neither", {"member_id": ""})
        ask(
            "one twice and a stranger", {"member_id": leader.id}, {"member_id": leader.id}, {"member_id": "x"}
        )
        ask("by instance alone", {"member_id": "", "group_instance_id": "instance"})
        leader.describe("everyone left")


@scenario("LeaveGroup", "an id that was given out", versions=range(6))
def leave_pending(talk: Conversation) -> None:
    member = Member(talk, talk.name("g"))
    member.join("for an id")
    member.leave("before it joined")
    member.join("after it left")
    member.describe("nobody was ever there")


# ---- groups -------------------------------------------------------------------------------------------------


@scenario("DescribeGroups", "answers")
def describe(talk: Conversation) -> None:
    group = talk.name("g")

    def ask(case: str, *groups: str, **flags: bool) -> None:
        talk.ask(case, {"groups": list(groups), **flags}, adjust=sorted_members)

    with stable(talk, group, 2):
        ask("nothing")
        ask("a stable one", group)
        ask("one that is missing, twice", talk.name("missing"), group, talk.name("missing"), group)
        ask("no name", "")
        if talk.version >= 3:
            ask("operations", group, talk.name("missing"), include_authorized_operations=True)


@scenario("ListGroups", "answers")
def list_groups(talk: Conversation) -> None:
    mine = talk.name("")

    def ask(case: str, **filters: Any) -> None:
        def only_mine(tree: Any) -> Any:
            groups = [group for group in tree["groups"] if group["group_id"].startswith(mine)]
            return tree | {"groups": sorted(groups, key=lambda group: group["group_id"])}

        talk.ask(case, filters, adjust=only_mine)

    with stable(talk, talk.name("stable")), talk.beside() as other:
        pending = Member(other, talk.name("pending"))
        pending.join("for an id", protocol_type="connect")
        completing = Member(talk, talk.name("completing"))
        completing.enter("one", protocol_type="connect")
        empty = Member(talk, talk.name("empty"))
        empty.enter("one")
        empty.leave("goes")
        ask("all")
        if talk.version >= 4:
            for states in (
                ["Stable"],
                ["stable", "EMPTY"],
                ["Dead"],
                ["CompletingRebalance"],
                [" Stable "],
                ["nonsense"],
                [""],
            ):
                ask(f"states {states}", states_filter=states)
        if talk.version >= 5:
            for types in ["classic"], ["CLASSIC", "consumer"], ["consumer"], ["nonsense"], [""]:
                ask(f"types {types}", types_filter=types)
            ask("both", states_filter=["Stable"], types_filter=["classic"])


@scenario("DeleteGroups", "answers")
def delete_groups(talk: Conversation) -> None:
    def ask(case: str, *groups: str) -> None:
        def in_order(tree: Any) -> Any:
            return tree | {"results": sorted(tree["results"], key=lambda result: result["group_id"])}

        talk.ask(case, {"groups_names": list(groups)}, adjust=in_order)

    with stable(talk, talk.name("stable")) as (member,):
        gone = Member(talk, talk.name("gone"))
        gone.enter("one")
        gone.leave("goes")
        ask("nothing")
        ask("one that is missing", talk.name("missing"))
        ask("no name", "")
        ask("one with members", member.group)
        ask("several", gone.group, member.group, talk.name("missing"))
        ask("one that is gone", gone.group)
        gone.describe("it is gone")
        ask("one twice", talk.name("missing"), talk.name("missing"))
        gone.id = ""
        gone.enter("it begins anew")
