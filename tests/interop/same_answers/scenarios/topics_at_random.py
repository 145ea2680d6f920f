"""Members of both protocols that change what they read, in orders that nobody thought of, and are sent away by others.

As `consumers_at_random`, with several topics: by the range assignor, which does not look at the topics' ids. Offsets
are committed beside it, with epochs that are right, old and too new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from moldau.coordinator.group.consumer.embedded import read_assignment

from ..conversation import Conversation, scenario
from ..peers import Both
from .consumer_groups import by_topic, sorted_groups, topic_of
from .consumers_at_random import LOST
from .group_offsets import offset

STORIES, STEPS, DESCRIBED_EVERY = 6, 60, 4
TOPICS = {"t": 4, "u": 3, "v": 2}
Owned = Mapping[str, Sequence[int]]


class Consumer:
    def __init__(self, story: Story, label: str, instance: str | None) -> None:
        self.story = story
        self.id = label
        self.instance = instance
        self.forget()

    def forget(self) -> None:
        self.epoch = 0
        self.told: Owned = {}
        self.owned: Owned = {}

    def step(self, random: Random) -> None:
        everything = {"subscribed_topic_names": self.story.some_topics(random), "rebalance_timeout": 60_000}
        join = everything | {"member_epoch": 0, "topic_partitions": [], "server_assignor": "range"}
        if not self.epoch:
            self.beat("joins", join)
            return
        steps: dict[str, dict[str, Any]] = {
            "beats": {},
            "has what it was told to": {"topic_partitions": self.rows(self.told)},
            "has what it had": {"topic_partitions": self.rows(self.owned)},
            "has missed an answer": {"member_epoch": max(1, self.epoch - 1), "topic_partitions": []},
            "reads other topics": {"subscribed_topic_names": everything["subscribed_topic_names"]},
            "says everything": everything | {"topic_partitions": self.rows(self.told)},
            "joins again": join,
            "leaves": {"member_epoch": -1},
            "is away": {"member_epoch": -1 if self.instance is None else -2},
        }
        what = random.choices(list(steps), [5, 7, 3, 1, 3, 1, 1, 1, 1])[0]
        if what == "has what it was told to":
            self.owned = self.told
        self.beat(what, steps[what])

    def rows(self, owned: Owned) -> list[dict[str, Any]]:
        talk = self.story.talk
        return [{"topic_id": talk.id_of(name), "partitions": list(held)} for name, held in owned.items()]

    def beat(self, what: str, values: dict[str, Any]) -> None:
        fields = {"group_id": self.story.group, "member_id": self.id, "member_epoch": self.epoch}
        fields |= {"instance_id": self.instance, "topic_partitions": None} | values
        talk = self.story.talk
        # Who has fenced a static member is told by an id that each broker has made.
        answers = talk.ask(
            f"{self.id} {what}", fields, adjust=lambda tree: by_topic(tree) | {"error_message": None}
        )
        answer = answers.moldau
        if answer.member_epoch < 0 or answer.error_code.name in LOST:
            self.forget()
        elif not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                names = talk.pair.moldau.topic_names
                rows = answer.assignment.topic_partitions
                self.told = {names[row.topic_id]: sorted(row.partitions) for row in rows}


class Classic:
    """Its id is one that it chose itself, or, where it is static, the broker's."""

    def __init__(self, story: Story, label: str, instance: str | None) -> None:
        self.story = story
        self.label = label
        self.instance = instance
        self.id: Both | str = ""
        self.forget()

    def forget(self) -> None:
        self.id = "" if self.instance else self.label
        self.epoch = -1
        self.owned: Owned = {}

    def step(self, random: Random) -> None:
        what = random.choices(["join", "beat", "sync", "leave"], [2, 4, 4, 1])[0]
        if self.epoch < 0 or what == "join":
            self.join(random)
        elif what == "beat":
            error = self.ask("Heartbeat", 4, generation_id=self.epoch).error_code.name
            if error == "rebalance_in_progress":
                self.join(random)
            elif error != "none":
                self.forget()
        elif what == "sync":
            self.sync()
        else:
            self.story.send_away([(self.id, self.instance)])
            self.forget()

    def ask(self, api: str, version: int, **values: Any) -> Any:
        fields = {"group_id": self.story.group, "member_id": self.id, "group_instance_id": self.instance}
        talk = self.story.talk
        answers = talk.ask(self.label, fields | values, api=api, version=version, adjust=_assigned)
        if api == "JoinGroup" and not answers.kafka.error_code and not answers.moldau.error_code:
            self.id = answers.map(lambda answer: answer.member_id)
        return answers.moldau

    def join(self, random: Random) -> None:
        metadata = _subscription(self.story.some_topics(random), self.owned)
        answer = self.ask(
            "JoinGroup",
            9,
            session_timeout=60_000,
            rebalance_timeout=60_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": metadata}],
        )
        if answer.error_code:
            self.forget()
        else:
            self.epoch = answer.generation_id

    def sync(self) -> None:
        values = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
        answer = self.ask("SyncGroup", 5, generation_id=self.epoch, **values)
        if not answer.error_code:
            self.owned = read_assignment(answer.assignment)[0]


class Story:
    def __init__(self, talk: Conversation, group: str, topics: Sequence[str]) -> None:
        self.talk = talk
        self.group = group
        self.topics = topics
        instances = [None, None, "one", "one", "two"]
        self.consumers = [Consumer(self, f"m{n}", instance) for n, instance in enumerate(instances)]
        self.classic = [Classic(self, "k1", None), Classic(self, "k2", "one"), Classic(self, "k3", "three")]

    def some_topics(self, random: Random) -> list[str]:
        return sorted(random.sample(self.topics, random.choice([1, 1, 2, 3])))

    def step(self, random: Random, *, has_classic: bool) -> None:
        present = [consumer for consumer in self.consumers if consumer.epoch]
        chance = random.random()
        if chance < 0.05:
            chosen = random.sample([*self.consumers, *self.classic], 2)
            self.send_away([(one.id, random.choice([None, one.instance])) for one in chosen])
        elif chance < 0.15:
            self.commit(random, random.choice(self.consumers))
        elif has_classic and len(present) > 1 and chance < 0.45:
            random.choice(self.classic).step(random)
        else:
            # Where only classic members are left the group changes its protocol, and a join waits for others.
            away = [consumer for consumer in self.consumers if not consumer.epoch]
            random.choice(away if has_classic and len(present) < 3 else self.consumers).step(random)

    def send_away(self, who: Sequence[tuple[Both | str, str | None]]) -> None:
        rows = [{"member_id": member, "group_instance_id": instance} for member, instance in who]
        self.talk.ask("sent away", {"group_id": self.group, "members": rows}, api="LeaveGroup", version=5)

    def commit(self, random: Random, member: Consumer) -> None:
        epoch = random.choice([member.epoch, member.epoch - 1, member.epoch + 1, -1])
        topic = {"topic_id": self.talk.id_of(random.choice(self.topics)), "partitions": [offset(0, 5)]}
        fields = {"group_id": self.group, "generation_id_or_member_epoch": epoch, "member_id": member.id}
        self.talk.ask(f"commits in {epoch}", fields | {"topics": [topic]}, api="OffsetCommit", version=10)

    def describe(self, case: str) -> None:
        values = {"group_ids": [self.group], "include_authorized_operations": False}
        self.talk.ask(case, values, api="ConsumerGroupDescribe", version=1, adjust=_by_instance)


def _by_instance(tree: Any) -> Any:
    """Static members have ids that each broker has made."""
    for group in sorted_groups(tree)["groups"]:
        for member in group["members"]:
            if member["instance_id"] and member["member_type"] == 0:
                member["member_id"] = "static"
        group["members"].sort(key=lambda member: (member["instance_id"] or "", member["member_id"]))
    return tree


def _assigned(tree: Any) -> Any:
    """Topics come in the order of a hash table."""
    if tree.get("assignment"):
        tree["assignment"] = sorted(read_assignment(tree["assignment"])[0].items())
    return tree


def _subscription(topics: Sequence[str], owned: Owned) -> bytes:
    """What a cooperative consumer sends."""
    rows = b"".join(_text(name) + _numbers(held) for name, held in owned.items())
    head = b"\x00\x01" + len(topics).to_bytes(4, "big") + b"".join(map(_text, topics))
    return head + b"\xff\xff\xff\xff" + len(owned).to_bytes(4, "big") + rows


def _text(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


def _numbers(numbers: Sequence[int]) -> bytes:
    return len(numbers).to_bytes(4, "big") + b"".join(number.to_bytes(4, "big") for number in numbers)


@scenario("ConsumerGroupHeartbeat", "topics at random", versions=(1,))
def topics_at_random(talk: Conversation) -> None:
    topics = [topic_of(talk, label, count) for label, count in TOPICS.items()]
    for seed in range(STORIES):
        random, story = Random(seed), Story(talk, talk.name(f"g{seed}"), topics)
        for step in range(STEPS):
            story.step(random, has_classic=seed % 2 == 1)
            if step % DESCRIBED_EVERY == 0:
                story.describe(f"story {seed}, step {step}")
            if talk.differences:
                return
