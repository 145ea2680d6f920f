"""Members of both protocols in one group: who may come and go, and when the group changes its protocol."""

from __future__ import annotations

import time
from itertools import permutations
from typing import Any

from ..conversation import Conversation, scenario
from .consumer_groups import HEARSAY_S, Consumer, describe, subscription, topic_of
from .groups import SUBSCRIPTION, Member, members, settle


def range_of(topic: str, *owned: int) -> dict[str, Any]:
    return {"name": "range", "metadata": subscription(topic, *owned)}


def together(talk: Conversation, group: str, topic: str, consumer: Consumer, classic: Member) -> None:
    """A consumer and a classic member share the four partitions of a topic."""
    consumer.join("first", [topic])
    classic.enter("second", [range_of(topic)])
    consumer.beat("told to revoke")
    consumer.owns("gives up", topic, 0, 1)
    classic.heartbeat("can go on")
    classic.enter("again", [range_of(topic)])
    classic.sync("its own")
    describe(talk, "together", group)


@scenario("LeaveGroup", "consumers", versions=(3, 5))
def leave_group_consumers(talk: Conversation) -> None:
    topic, group = topic_of(talk, "t", 2), talk.name("g")
    names = {"one": None, "two": "i2", "three": "i3"}
    for label, instance in names.items():
        Consumer(talk, group, label, instance).join("joins", [topic])

    def leave(case: str, *who: tuple[str, str | None]) -> None:
        rows = [{"member_id": member, "group_instance_id": instance} for member, instance in who]
        talk.ask(case, {"group_id": group, "members": rows})
        describe(talk, case, group)

    leave("nobody", ("nobody", None), ("", None), ("", "nobody"))
    leave("another's instance", ("one", "i2"), ("three", "i2"))
    leave("by id, twice", ("one", None), ("one", None))
    leave("by instance", ("", "i2"))
    leave("by both", ("three", "i3"))


@scenario("JoinGroup", "in place of a consumer", versions=(5, 9))
def join_group_in_place_of_a_consumer(talk: Conversation) -> None:
    topic, group = topic_of(talk, "t", 2), talk.name("g")
    Consumer(talk, group, "one").join("stays", [topic])
    Consumer(talk, group, "two", "i").join("is replaced", [topic], rack_id="r", server_assignor="range")
    classic = Member(talk, group, "i")
    classic.enter("takes its place", [range_of(topic)])
    describe(talk, "replaced", group)
    dynamic = Consumer(talk, talk.name("h"), "same")
    dynamic.join("alone", [topic])
    same = Member(talk, dynamic.group)
    same.id = dynamic.id
    same.join("the same in the other protocol", [range_of(topic)])
    describe(talk, "the same", dynamic.group)
    same.sync("the same")
    same.heartbeat("the same")


@scenario("JoinGroup", "refused by a consumer group", versions=(5, 9))
def join_group_refused(talk: Conversation) -> None:
    topic, group = topic_of(talk, "t", 1), talk.name("g")
    Consumer(talk, group, "one", "i").join("is there", [topic])

    def join(case: str, instance: str | None = None, **values: Any) -> None:
        classic = Member(talk, group, instance)
        classic.id = "chosen"
        classic.join(case, **({"protocols": [range_of(topic)]} | values))

    join("another type", protocol_type="connect")
    join("no protocols", protocols=[])
    join("the instance of another", "i")
    join("an instance that nobody has", "other")


@scenario("JoinGroup", "in place of the last consumer", versions=(5, 9))
def join_group_in_place_of_the_last_consumer(talk: Conversation) -> None:
    topic, other, group = topic_of(talk, "t", 4), topic_of(talk, "u", 2), talk.name("g")
    with members(talk, group, 1) as (stays,), members(talk, group, 1) as (takes,):
        together(talk, group, topic, Consumer(talk, group, "one", "i"), stays)
        takes.instance = "i"
        takes.enter("with other topics", [range_of(other)])
        time.sleep(HEARSAY_S)
        describe(talk, "a classic group", group)
        stays.describe("rebalances")
        stays.heartbeat("is to join")
        takes.sync("is to join")
    steady = talk.name("steady")
    with members(talk, steady, 1) as (stays,), members(talk, steady, 1) as (takes,):
        together(talk, steady, topic, Consumer(talk, steady, "one", "i"), stays)
        takes.instance = "i"
        takes.enter("with the same topics", [range_of(topic)])
        time.sleep(HEARSAY_S)
        stays.heartbeat("goes on")
        takes.sync("goes on")
        stays.describe("steady")


@scenario("JoinGroup", "as many votes", versions=(9,))
def join_group_as_many_votes(talk: Conversation) -> None:
    """Two members with opposite preferences: one protocol is chosen whoever came first."""
    for first, second in permutations(("range", "roundrobin", "sticky", "cooperative-sticky"), 2):
        protocols = [{"name": name, "metadata": SUBSCRIPTION} for name in (first, second)]
        with members(talk, talk.name(f"{first}-{second}"), 2) as (one, two):
            one.enter("comes first", protocols)
            two.join("for an id", protocols[::-1])
            two.begin_join(protocols[::-1])
            settle()
            one.begin_join(protocols)
            one.end_join(f"{first} or {second}")
            two.end_join(f"{first} or {second}")
