"""Whatever members, topics, brokers and answers do: no two members ever have one partition, and all end well."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.consumer.messages import Beaten

from .consumer_support import Consumer, Consumers

NAMES = ("a", "b", "c", "d")
TOPICS = ("t", "u")
STEPS = st.one_of(
    st.tuples(st.just("beat"), st.sampled_from(NAMES)),
    st.tuples(st.just("beat"), st.sampled_from(NAMES)),
    st.tuples(st.just("beat unheard"), st.sampled_from(NAMES)),
    st.tuples(st.just("beat, still busy"), st.sampled_from(NAMES)),
    st.tuples(st.just("subscribe"), st.sampled_from(NAMES), st.sets(st.sampled_from(TOPICS))),
    st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("sleep"), st.sampled_from([1_000, 20_000])),
    st.tuples(st.just("grow"), st.sampled_from(TOPICS)),
    st.tuples(st.just("delete"), st.just("u")),
    st.tuples(st.just("fail over")),
    st.tuples(st.just("refuse")),
)


class Client(Consumer):
    """Knows what it has until it hears otherwise, or its session has ended."""

    is_member = False
    must_say_all = False
    """An answer was lost: as clients do, it says everything, and is told everything."""
    told: dict[UUID, frozenset[int]]

    def act(self, what: str) -> None:
        if not self.is_member:
            answer = self.join()
            self.is_member = not answer.error_code
            self.told, self.must_say_all = self.owned, False
        elif what == "beat unheard":
            self._beat_unheard()
            return
        else:
            answer = self._beat_heard(is_busy=what == "beat, still busy")
        self._hear(answer)

    def _beat_unheard(self) -> None:
        known = self.epoch, self.owned
        self.beat()
        self.epoch, self.owned = known
        self.must_say_all = True

    def _beat_heard(self, *, is_busy: bool) -> Beaten:
        """One that is busy works on what it has, beside what it gets; otherwise it has what it was told last."""
        self.owned = had = self.owned if is_busy else self.told
        all_fields = {"rebalance_timeout_ms": 60_000, "topics": self.joining["topics"]}
        answer = self.beat(**(all_fields if self.must_say_all else {}))
        if not answer.error_code:
            self.must_say_all = False
            if answer.assignment is not None:
                self.told = self.owned
        if is_busy and not answer.error_code:
            self.owned = {
                topic: had.get(topic, frozenset()) | self.told.get(topic, frozenset())
                for topic in {**had, **self.told}
            }
        return answer

    def _hear(self, answer: Beaten) -> None:
        fenced = (
            ErrorCode.unknown_member_id,
            ErrorCode.fenced_member_epoch,
            ErrorCode.group_id_not_found,
        )
        if answer.error_code in fenced:
            self.forget()

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.joining["topics"] = topics
        self.must_say_all = True
        if self.is_member:
            self._hear(self._beat_heard(is_busy=True))

    def forget(self) -> None:
        self.is_member, self.owned, self.epoch = False, {}, 0


class Story:
    def __init__(self) -> None:
        self.coordinator = Consumers(partitions=3)
        self.coordinator.topics.make("u", 2)
        self.clients = {name: Client(self.coordinator, name, topics=TOPICS) for name in NAMES}

    def tell(self, step: tuple[Any, ...]) -> None:
        what, *details = step
        coordinator = self.coordinator
        match what:
            case "subscribe":
                self.clients[details[0]].subscribe(tuple(sorted(details[1])))
            case "leave":
                client = self.clients[details[0]]
                if client.is_member:
                    client.leave()
                    client.forget()
            case "sleep":
                self.sleep(details[0])
            case "grow" if details[0] in coordinator.topics.topics:
                count = len(coordinator.topics.topics[details[0]].partitions)
                coordinator.topics.make(details[0], min(count + 1, 6))
                coordinator.change_topics(details[0])
            case "grow":
                coordinator.topics.make(details[0], 1)
                coordinator.change_topics(details[0])
            case "delete" if details[0] in coordinator.topics.topics:
                coordinator.topics.delete(details[0])
                coordinator.carry_out(coordinator.shard.on_topics_deleted(details))
            case "fail over":
                coordinator.fail_over()
            case "refuse":
                coordinator.refusal = None if coordinator.refusal else ErrorCode.not_coordinator
            case _ if details and details[0] in self.clients:
                self.clients[details[0]].act(what)
        self.check()

    def sleep(self, ms: int) -> None:
        """A client whose session ends knows it by itself."""
        members = self.members()
        self.coordinator.sleep(ms)
        for name in members - self.members():
            self.clients[name].forget()

    def members(self) -> set[str]:
        found = self.coordinator.shard.describe_consumer("g")
        return set() if isinstance(found, str) else {member.member_id for member in found.members}

    def check(self) -> None:
        owners: dict[tuple[Any, int], str] = {}
        for client in self.clients.values():
            for topic_id, held in client.owned.items():
                for partition in held:
                    owner = owners.setdefault((topic_id, partition), client.id)
                    assert owner == client.id, f"{owner} and {client.id} have partition {partition}"

    def end_well(self) -> None:
        """Once nothing disturbs them any more, everyone has its target, and all partitions are read."""
        self.coordinator.refusal = None
        for client in self.clients.values():
            client.subscribe(TOPICS)
        for _ in range(8):
            for client in self.clients.values():
                client.act("beat")
                self.check()
        wanted = {
            (topic.topic_id, partition)
            for topic in self.coordinator.topics.topics.values()
            for partition in topic.partitions
        }
        had = {
            (topic_id, partition)
            for client in self.clients.values()
            for topic_id, held in client.owned.items()
            for partition in held
        }
        assert had == wanted
        shown = self.coordinator.shown()
        assert shown.group_state == "Stable"
        self.coordinator.fail_over()
        assert self.coordinator.shown() == shown


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_no_two_members_have_one_partition(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    for step in steps:
        story.tell(step)
    story.end_well()
