"""Consumer groups in orders that nobody thought of: members of both protocols come, go, and say what they like.

Every answer is compared, and the group every few steps. All members read one topic: which of several a member keeps
first depends on their ids, which are drawn at random.
"""

from __future__ import annotations

from random import Random
from typing import Any

from moldau.coordinator.group.consumer.embedded import read_assignment

from ..conversation import Conversation, scenario
from ..peers import Both
from .consumer_groups import Consumer, describe, subscription, topic_of

STORIES, STEPS, DESCRIBED_EVERY = 6, 60, 5
LOST = ("fenced_member_epoch", "unknown_member_id", "fenced_instance_id", "group_id_not_found")


class Client(Consumer):
    """It knows what it was told to have, and what it has."""

    def __init__(self, talk: Conversation, group: str, topic: str, label: str, instance: str | None) -> None:
        super().__init__(talk, group, label, instance)
        self.topic = topic
        self.is_in = False
        self.told: list[int] = []
        self.owned: list[int] = []

    def step(self, random: Random) -> None:
        if not self.is_in:
            self.learn(self.join("joins", [self.topic]))
            return
        epoch = self.epoch.moldau if isinstance(self.epoch, Both) else self.epoch
        steps: dict[str, dict[str, Any]] = {
            "beats": {},
            "has what it was told to": {"topic_partitions": self.rows(self.told)},
            "has what it had": {"topic_partitions": self.rows(self.owned)},
            "has some": {"topic_partitions": self.rows([p for p in self.told if random.random() < 0.6])},
            "says everything": {
                "topic_partitions": self.rows(self.told),
                "subscribed_topic_names": [self.topic],
                "rebalance_timeout": 60_000,
            },
            "has missed an answer": {"member_epoch": max(1, epoch - 1)},
            "leaves": {"member_epoch": -1},
        }
        if self.instance is not None:
            steps["is away"] = {"member_epoch": -2}
        what = random.choices(list(steps), [6, 6, 3, 2, 1, 1, 2, 2][: len(steps)])[0]
        if what == "has what it was told to":
            self.owned = self.told
        self.learn(self.beat(what, **steps[what]), is_gone=what in ("leaves", "is away"))

    def rows(self, partitions: list[int]) -> list[dict[str, Any]]:
        if not partitions:
            return []
        return [{"topic_id": self.talk.id_of(self.topic), "partitions": sorted(partitions)}]

    def learn(self, answers: Both, *, is_gone: bool = False) -> None:
        answer = answers.moldau
        if is_gone or answer.error_code.name in LOST:
            self.is_in, self.epoch, self.told, self.owned = False, 0, [], []
        elif not answer.error_code:
            self.is_in = True
            if answer.assignment is not None:
                rows = answer.assignment.topic_partitions
                self.told = [partition for row in rows for partition in row.partitions]


class Classic:
    """A member that speaks the classic protocol, under an id that it chose itself."""

    def __init__(self, talk: Conversation, group: str, topic: str, label: str) -> None:
        self.talk = talk
        self.topic = topic
        self.fields = {"group_id": group, "member_id": label, "group_instance_id": None}
        self.generation = -1
        self.owned: tuple[int, ...] = ()

    def step(self, random: Random) -> None:
        what = random.choices(["join", "beat", "sync", "leave"], [2, 4, 4, 1])[0]
        if self.generation < 0 or what == "join":
            self.join()
        elif what == "beat":
            error = self.ask("Heartbeat", 4, generation_id=self.generation).error_code.name
            if error == "rebalance_in_progress":
                self.join()
            elif error != "none":
                self.forget()
        elif what == "sync":
            self.sync()
        else:
            group, member = self.fields["group_id"], {"member_id": self.fields["member_id"]}
            self.talk.ask("leaves", {"group_id": group, "members": [member]}, api="LeaveGroup", version=5)
            self.forget()

    def ask(self, api: str, version: int, **values: Any) -> Any:
        case = f"{self.talk.api}: {self.fields['member_id']}"
        return self.talk.ask(case, self.fields | values, api=api, version=version).moldau

    def join(self) -> None:
        answer = self.ask(
            "JoinGroup",
            9,
            session_timeout=30_000,
            rebalance_timeout=60_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": subscription(self.topic, *self.owned)}],
        )
        if answer.error_code:
            self.forget()
        else:
            self.generation = answer.generation_id

    def sync(self) -> None:
        values = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
        answer = self.ask("SyncGroup", 5, generation_id=self.generation, **values)
        if not answer.error_code:
            self.owned = read_assignment(answer.assignment)[0].get(self.topic, ())

    def forget(self) -> None:
        self.generation, self.owned = -1, ()


@scenario("ConsumerGroupHeartbeat", "at random", versions=(1,))
def at_random(talk: Conversation) -> None:
    topic = topic_of(talk, "t", 5)
    for seed in range(STORIES):
        random, group = Random(seed), talk.name(f"g{seed}")
        instances = [None, None, "one", "one", "two"]
        clients = [Client(talk, group, topic, f"m{n}", instance) for n, instance in enumerate(instances)]
        # Every other story has classic members too. Where only they are left the group changes its protocol.
        others = [Classic(talk, group, topic, name) for name in ("k1", "k2")] if seed % 2 else []
        for step in range(STEPS):
            present = [client for client in clients if client.is_in]
            if others and present and random.random() < 0.35:
                random.choice(others).step(random)
            else:
                away = [client for client in clients if not client.is_in]
                random.choice(away if others and len(present) < 2 else clients).step(random)
            if step % DESCRIBED_EVERY == 0:
                describe(talk, f"story {seed}, step {step}", group)
            if talk.differences:
                return
