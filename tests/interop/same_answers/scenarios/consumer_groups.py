"""Consumer groups (KIP-848): heartbeats with all that they can say, descriptions, offsets by epoch, both protocols."""

from __future__ import annotations

import time
from typing import Any

from ..conversation import NO_SUCH_ID, Conversation, scenario
from ..peers import Both
from .group_offsets import in_order, offset
from .groups import Member, members

BEAT, DESCRIBE, COMMIT, FETCH = 1, 1, 9, 9
"""The versions in which other scenarios ask."""
HEARSAY_S = 0.5
EXPRESSION_S = 1.0
"""Kafka finds the topics of an expression in the background."""


class Consumer:
    """A member on both brokers."""

    def __init__(self, talk: Conversation, group: str, label: str, instance: str | None = None) -> None:
        self.talk = talk
        self.group = group
        self.id = label
        self.instance = instance
        self.epoch: Both | int = 0

    def beat(self, case: str, **values: Any) -> Both:
        """It says nothing of what it owns where that is not given."""
        talk = self.talk
        fields = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch}
        fields["topic_partitions"] = None
        if self.instance is not None:
            fields["instance_id"] = self.instance
        answers = talk.ask(
            f"{talk.api}: {self.id}, {case}",
            fields | values,
            api="ConsumerGroupHeartbeat",
            version=talk.version if talk.api == "ConsumerGroupHeartbeat" else BEAT,
            adjust=by_topic,
        )
        if not isinstance(answers.kafka, str) and not answers.kafka.error_code:
            self.epoch = answers.map(lambda answer: answer.member_epoch)
        return answers

    def join(self, case: str, topics: list[str] | None, **values: Any) -> Both:
        fields = {
            "member_epoch": 0,
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": topics,
            "topic_partitions": [],
        }
        return self.beat(case, **(fields | values))

    def owns(self, case: str, topic: str, *partitions: int) -> Both:
        owned = [{"topic_id": self.talk.id_of(topic), "partitions": list(partitions)}] if partitions else []
        return self.beat(case, topic_partitions=owned)

    def leave(self, case: str, epoch: int = -1) -> Both:
        return self.beat(case, member_epoch=epoch)


def by_topic(tree: Any) -> Any:
    """Topics and partitions come in the order of a hash table."""
    if tree.get("assignment"):
        _sort(tree["assignment"])
    return tree


def _sort(assignment: Any) -> None:
    assignment["topic_partitions"].sort(key=lambda topic: str(topic["topic_id"]))
    for topic in assignment["topic_partitions"]:
        topic["partitions"].sort()


def sorted_groups(tree: Any) -> Any:
    for group in tree["groups"]:
        group["members"].sort(key=lambda member: member["member_id"])
        for member in group["members"]:
            member["subscribed_topic_names"].sort()
            _sort(member["assignment"])
            _sort(member["target_assignment"])
    return tree


def describe(talk: Conversation, case: str, *groups: str, asked: bool = False) -> None:
    talk.ask(
        f"{talk.api}: {case}",
        {"group_ids": list(groups), "include_authorized_operations": asked},
        api="ConsumerGroupDescribe",
        version=talk.version if talk.api == "ConsumerGroupDescribe" else DESCRIBE,
        adjust=sorted_groups,
    )


def topic_of(talk: Conversation, label: str, partitions: int = 1) -> str:
    """Kafka's coordinator hears of a new topic a little after its clients."""
    name = talk.topic(label, partitions)
    time.sleep(HEARSAY_S)
    return name


@scenario("ConsumerGroupHeartbeat", "refused")
def heartbeat_refused(talk: Conversation) -> None:
    topic = topic_of(talk, "t")
    one = Consumer(talk, talk.name("g"), "one")
    one.join("no names", None)
    one.join("no time-out", [topic], rebalance_timeout=-1)
    one.join("owned null", [topic], topic_partitions=None)
    one.join("owned some", [topic], topic_partitions=[{"topic_id": NO_SUCH_ID, "partitions": [0]}])
    one.join("no group", [topic], group_id="")
    one.join("blank group", [topic], group_id=" ")
    one.join("an empty instance", [topic], instance_id="")
    one.join("an empty rack", [topic], rack_id="")
    one.join("an assignor that is none", [topic], server_assignor="sticky")
    one.beat("not joined", member_epoch=1)
    one.beat("no member id", member_id="", member_epoch=1)
    one.beat("far below", member_epoch=-3)
    one.leave("of no group")
    one.leave("for a while, not static", -2)
    one.beat("for a while, of no group", member_epoch=-2, instance_id="i")
    one.join("good", [topic])
    one.beat("beyond", member_epoch=10)
    one.beat("before", member_epoch=1)
    one.beat("another's", member_id="other", member_epoch=2)
    one.beat("leaving as another", member_id="other", member_epoch=-1)
    one.beat("an instance", instance_id="i")
    one.beat("an assignor that is none", server_assignor="")
    if talk.version >= 1:
        one.join("no id", [topic], member_id="")
        one.join("a bad expression", None, subscribed_topic_regex="[", member_id="two")
    describe(talk, "after all of it", one.group)


@scenario("ConsumerGroupHeartbeat", "hand over")
def heartbeat_hand_over(talk: Conversation) -> None:
    # One topic at a time: which of several a member keeps first depends on their ids, which are drawn at random.
    topic, other = topic_of(talk, "t", 5), topic_of(talk, "u", 2)
    one, two = Consumer(talk, talk.name("g"), "one"), Consumer(talk, talk.name("g"), "two")
    one.join("alone", [topic])
    one.beat("again")
    describe(talk, "alone", one.group)
    two.join("second", [topic])
    describe(talk, "two", one.group)
    one.beat("told to revoke")
    one.beat("waits")
    two.beat("waits")
    one.beat("asks for all", topic_partitions=None)
    describe(talk, "while one revokes", one.group)
    gone = [{"topic_id": talk.id_of(topic), "partitions": [0]}]
    one.beat("has revoked", topic_partitions=gone)
    one.beat("after that")
    two.beat("gets the rest")
    describe(talk, "stable", one.group)
    two.beat("reads another", subscribed_topic_names=[other])
    describe(talk, "reads another", one.group)
    one.beat("gets back")
    two.beat("has given", topic_partitions=[])
    one.beat("gets back more")
    describe(talk, "after that", one.group)
    two.leave("leaves")
    one.beat("alone again")
    describe(talk, "alone again", one.group)
    one.leave("leaves")
    describe(talk, "empty", one.group)
    one.beat("has left", member_epoch=1)
    talk.ask(f"{talk.api}: listed", {"groups": [one.group]}, api="DescribeGroups", version=6)
    talk.ask(f"{talk.api}: deleted", {"groups_names": [one.group]}, api="DeleteGroups", version=2)
    describe(talk, "deleted", one.group)


@scenario("ConsumerGroupHeartbeat", "a topic twice", versions=(1,))
def heartbeat_a_topic_twice(talk: Conversation) -> None:
    topic, group = topic_of(talk, "t", 2), talk.name("g")
    one, two = Consumer(talk, group, "one"), Consumer(talk, group, "two")
    one.join("alone", [topic])
    two.join("second", [topic])
    one.beat("told to revoke")
    rows = [{"topic_id": talk.id_of(topic), "partitions": [number]} for number in (1, 0)]
    one.beat("has both still", topic_partitions=rows)
    two.beat("waits")
    describe(talk, "while one has both", group)


@scenario("ConsumerGroupHeartbeat", "range")
def heartbeat_range(talk: Conversation) -> None:
    topic, other = topic_of(talk, "t", 5), topic_of(talk, "u", 2)
    group = talk.name("g")
    one, two = Consumer(talk, group, "one"), Consumer(talk, group, "two", "b")
    three = Consumer(talk, group, "three", "a")
    one.join("first", [topic, other], server_assignor="range")
    two.join("second", [topic], server_assignor="range")
    three.join("third", [other, topic], server_assignor="range")
    three.beat("computed")
    describe(talk, "three", group)


@scenario("ConsumerGroupHeartbeat", "topics")
def heartbeat_topics(talk: Conversation) -> None:
    topic, missing = topic_of(talk, "t", 2), talk.name("later")
    one = Consumer(talk, talk.name("g"), "one")
    one.join("one that is not there", [topic, missing])
    one.beat("nothing new")
    more = {"name": topic, "count": 4, "assignments": None}
    talk.pair.ask("CreatePartitions", 3, {"topics": [more], "timeout": 10_000, "validate_only": False})
    talk.learn(topic, 4)
    time.sleep(HEARSAY_S)
    one.beat("more partitions")
    topic_of(talk, "later", 1)
    one.beat("the missing one is there")
    talk.pair.ask("DeleteTopics", 6, {"topics": [{"name": missing, "topic_id": None}], "timeout": 10_000})
    time.sleep(HEARSAY_S)
    one.beat("one was deleted")
    one.owns("one was deleted, and given up", topic, 0, 1, 2, 3)
    describe(talk, "after all of it", one.group)


@scenario("ConsumerGroupHeartbeat", "expression", versions=(1,))
def heartbeat_expression(talk: Conversation) -> None:
    first, second = talk.topic("t", 2), topic_of(talk, "u", 1)
    one = Consumer(talk, talk.name("g"), "one")
    expression = f"{first}|{second[:-1]}[[:alpha:]]|(x+x+)+y"
    # Kafka finds the topics a little later, and Moldau at once: only what comes of it is compared.
    values = {"group_id": one.group, "member_id": one.id, "member_epoch": 0, "rebalance_timeout": 30_000}
    values |= {"subscribed_topic_regex": expression, "subscribed_topic_names": None, "topic_partitions": []}
    answers = talk.pair.ask("ConsumerGroupHeartbeat", 1, values)
    one.epoch = answers.map(lambda answer: answer.member_epoch)
    time.sleep(EXPRESSION_S)
    again = {"group_id": one.group, "member_id": one.id, "member_epoch": one.epoch}
    answers = talk.pair.ask("ConsumerGroupHeartbeat", 1, again)
    one.epoch = answers.map(lambda answer: answer.member_epoch)
    describe(talk, "found", one.group)
    one.beat("by name as well", subscribed_topic_names=[first])
    one.beat("by name only", subscribed_topic_regex="")
    one.owns("has given up the other", first, 0, 1)
    describe(talk, "after all of it", one.group)


@scenario("ConsumerGroupHeartbeat", "static")
def heartbeat_static(talk: Conversation) -> None:
    topic = topic_of(talk, "t", 3)
    group = talk.name("g")
    first, second = Consumer(talk, group, "first", "i"), Consumer(talk, group, "second", "i")
    first.join("first", [topic])
    second.join("taken", [topic])
    second.beat("not its own", member_epoch=2)
    first.leave("for a while", -2)
    describe(talk, "for a while", group)
    first.beat("away", member_epoch=2)
    second.join("comes back", [topic])
    describe(talk, "back", group)
    first.beat("fenced", member_epoch=2)
    first.leave("fenced")
    second.leave("for good")
    describe(talk, "empty", group)


@scenario("ConsumerGroupDescribe", "answers")
def consumer_group_describe(talk: Conversation) -> None:
    topic, group = topic_of(talk, "t", 1), talk.name("g")
    describe(talk, "nothing")
    describe(talk, "none", group)
    describe(talk, "no name", "")
    one = Consumer(talk, group, "one")
    one.join("joined", [topic], rack_id="r")
    describe(talk, "one", group)
    describe(talk, "one, with operations", group, asked=True)
    describe(talk, "several", group, talk.name("missing"), group)
    classic = Member(talk, talk.name("classic"))
    classic.enter("another kind")
    describe(talk, "a classic one", classic.group)
    talk.ask(
        f"{talk.api}: classic, of a consumer group", {"groups": [group]}, api="DescribeGroups", version=6
    )
    talk.ask(f"{talk.api}: old, of a consumer group", {"groups": [group]}, api="DescribeGroups", version=5)


@scenario("ConsumerGroupDescribe", "offsets", versions=(1,))
def offsets_by_epoch(talk: Conversation) -> None:
    topic, group = topic_of(talk, "t", 2), talk.name("g")
    one, two = Consumer(talk, group, "one"), Consumer(talk, group, "two")
    one.join("joined", [topic])

    def commit(
        case: str, epoch: Any, member: str = "one", version: int = COMMIT, partitions: Any = (0, 1)
    ) -> None:
        named = talk.named(topic, ids_from=10, version=version)
        rows = [{**named, "partitions": [offset(index, 5) for index in partitions]}]
        fields = {"group_id": group, "generation_id_or_member_epoch": epoch, "member_id": member}
        talk.ask(f"{talk.api}: {case}", fields | {"topics": rows}, api="OffsetCommit", version=version)

    def fetch(case: str, epoch: Any, member: str | None = "one") -> None:
        fields = {"group_id": group, "member_id": member, "member_epoch": epoch}
        fields["topics"] = [{"name": topic, "partition_indexes": [0, 1]}]
        talk.ask(
            f"{talk.api}: {case}", {"groups": [fields]}, api="OffsetFetch", version=FETCH, adjust=in_order
        )

    commit("the member", 2)
    commit("older", 1)
    commit("newer", 3)
    commit("nobody", 2, "nobody")
    commit("no member", -1, "")
    commit("no epoch", -1)
    commit("by an old version", 2, version=8)
    fetch("the member", 2)
    fetch("older", 1)
    fetch("newer", 3)
    fetch("nobody", 2, "nobody")
    fetch("no member", -1, None)
    two.join("second", [topic])
    one.owns("gives up", topic, 0)
    commit("with the epoch before", 2)
    commit("with the epoch before, by id", 2, version=10)
    commit("with the epoch before, of what it has kept", 2, partitions=[0])
    commit("with the epoch before, of what it has given up", 2, partitions=[1])
    commit("with the epoch before that", 1, partitions=[0])
    commit("the new member, with the epoch before", 2, "two", partitions=[1])
    one.leave("leaves")
    two.leave("leaves")
    commit("of an empty group", -1, "")
    commit("a member of an empty group", 2)
    fetch("no member of an empty group", -1, None)


@scenario("ConsumerGroupDescribe", "both protocols", versions=(1,))
def both_protocols(talk: Conversation) -> None:
    topic, group = topic_of(talk, "t", 2), talk.name("g")
    subscribed = {"name": "range", "metadata": subscription(topic)}
    one = Consumer(talk, group, "one")
    one.join("joined", [topic])
    with members(talk, group, 1) as (classic,):
        classic.join("another type", protocol_type="connect")
        classic.join("garbage", [{"name": "range", "metadata": b"\x00"}])
        classic.enter("classic", [subscribed])
        describe(talk, "a classic member", group)
        classic.heartbeat("waits")
        classic.sync("nothing yet")
        one.beat("told to revoke")
        one.owns("gives up", topic, 0)
        classic.heartbeat("can go on")
        classic.enter("again", [subscribed])
        classic.sync("its own")
        describe(talk, "stable", group)
        one.leave("the last consumer")
        time.sleep(HEARSAY_S)
        describe(talk, "downgraded", group)
        classic.heartbeat("is to join")
        classic.enter("alone", [subscribed])
        classic.sync("alone", [(classic.id, _assignment(topic, 0))])  # else it is chance who gets which
        classic.describe("stable")
        two = Consumer(talk, group, "two")
        two.join("upgraded", [topic])
        describe(talk, "upgraded", group)
        classic.heartbeat("in the upgraded group")


def subscription(topic: str, *owned: int) -> bytes:
    """What a cooperative consumer of a topic sends."""
    name = len(topic.encode()).to_bytes(2, "big") + topic.encode()
    head = b"\x00\x01\x00\x00\x00\x01" + name + b"\xff\xff\xff\xff"
    if not owned:
        return head + b"\x00\x00\x00\x00"
    numbers = b"".join(one.to_bytes(4, "big") for one in owned)
    return head + b"\x00\x00\x00\x01" + name + len(owned).to_bytes(4, "big") + numbers


def _assignment(topic: str, partition: int) -> bytes:
    name = topic.encode()
    head = b"\x00\x00\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name
    return head + b"\x00\x00\x00\x01" + partition.to_bytes(4, "big") + b"\xff\xff\xff\xff"
