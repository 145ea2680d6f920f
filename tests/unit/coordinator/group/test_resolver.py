"""Expressions whose topics take too long to find within a heartbeat: a thread finds them, and the group hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from moldau.base.limits import (
    EXPRESSION_NAMES_INLINE_MAX,
    EXPRESSION_NAMES_PER_PIECE,
    EXPRESSION_STEPS_INLINE_MAX,
    EXPRESSIONS_INLINE_MAX,
)
from moldau.coordinator.expressions import Expression, expression
from moldau.coordinator.group.consumer.evolution import REGEX_ASKED_INTERVAL_MS
from moldau.coordinator.group.consumer.messages import Resolved, Unresolved
from moldau.coordinator.group.consumer.resolver import Resolver
from moldau.sim.world import World

from .consumer_support import Consumer, Consumers
from .support import ClusterTopics

GROUP = "g"


@pytest.fixture
def coordinator() -> Consumers:
    return Consumers()


@pytest.fixture
def world() -> Iterator[World]:
    with World("resolver") as world:
        yield world
        assert not world.failures


def test_topics_of_many_names_are_not_looked_for_in_a_heartbeat(coordinator: Consumers) -> None:
    for number in range(EXPRESSION_NAMES_INLINE_MAX):
        coordinator.topics.make(f"other-{number}", 1)
    a = Consumer(coordinator, "a", topics=None, regex="t")
    a.join()

    assert a.partitions == []
    assert coordinator.effects == [Unresolved(GROUP, ("t",))]


def test_what_was_found_aside_is_assigned_with_the_next_heartbeat(coordinator: Consumers) -> None:
    for number in range(EXPRESSION_NAMES_INLINE_MAX):
        coordinator.topics.make(f"other-{number}", 1)
    a = Consumer(coordinator, "a", topics=None, regex="t")
    a.join()
    found = Resolved(GROUP, "t", ("t",), coordinator.topics.version)
    coordinator.carry_out(coordinator.shard.on_resolved(found, coordinator.moment))
    a.beat()

    assert a.partitions == [0, 1, 2, 3]


def test_what_nobody_wants_any_more_when_it_is_found_is_not_recorded(coordinator: Consumers) -> None:
    a = Consumer(coordinator, "a", topics=None, regex="t")
    a.join()
    before = len(coordinator.log)
    for group_id in (GROUP, "unknown"):
        found = Resolved(group_id, "other", ("t",), coordinator.topics.version)
        coordinator.carry_out(coordinator.shard.on_resolved(found, coordinator.moment))

    assert len(coordinator.log) == before


def test_an_expression_of_many_steps_is_left_to_the_resolver_however_few_the_topics(
    coordinator: Consumers,
) -> None:
    coordinator.topics.make("a" * 249, 1)
    costly = "(a?b?){400}"
    assert Expression(costly).size * 250 > EXPRESSION_STEPS_INLINE_MAX / 2
    for member_id in "ab":
        Consumer(coordinator, member_id, topics=None, regex=f"{costly}{member_id}{costly}").join()

    assert coordinator.effects != []


def test_one_heartbeat_looks_for_few_expressions_of_a_group(coordinator: Consumers) -> None:
    regexes = [f"t|{number}" for number in range(3 * EXPRESSIONS_INLINE_MAX)]
    consumers = [Consumer(coordinator, regex, topics=None, regex=regex) for regex in regexes]
    for consumer in consumers:
        consumer.join()
    assert coordinator.effects == []
    coordinator.topics.make("further", 1)
    coordinator.sleep(10_001)
    consumers[0].beat()

    (wanted,) = coordinator.effects
    assert len(wanted.regexes) == len(regexes) - EXPRESSIONS_INLINE_MAX


class Threads:
    """Work in a thread is done when the test says so."""

    def __init__(self, world: World) -> None:
        runtime = world.host("broker").runtime
        self.tasks = runtime.tasks
        self.sizes: list[int] = []
        self.told: list[Resolved] = []

    def resolver(self, names: list[str], monkeypatch: pytest.MonkeyPatch) -> Resolver:
        topics = ClusterTopics()
        for name in names:
            topics.make(name, 1)
        monkeypatch.setattr(Expression, "matching", self._counting(Expression.matching))
        return Resolver(self.tasks, topics, self.told.append)

    def _counting(
        self, matching: Callable[[Expression, list[str]], list[str]]
    ) -> Callable[[Expression, list[str]], list[str]]:
        def counted(one: Expression, names: list[str]) -> list[str]:
            self.sizes.append(len(names))
            return matching(one, names)

        return counted


def test_names_are_matched_in_pieces_and_groups_take_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    expression.cache_clear()
    threads = Threads(world)
    names = [f"t-{number}" for number in range(2 * EXPRESSION_NAMES_PER_PIECE + 1)]
    resolver = threads.resolver(names, monkeypatch)

    async def resolve() -> None:
        resolver.begin(Unresolved("long", ("t-.*", "t-1.*")))
        resolver.begin(Unresolved("long", ("t-.*",)))
        resolver.begin(Unresolved("short", ("t-0",)))
        await world.sleep(5)

    world.run(resolve())
    assert threads.sizes == [EXPRESSION_NAMES_PER_PIECE] * 4 + [1] * 2 + [EXPRESSION_NAMES_PER_PIECE] * 2 + [
        1
    ]
    assert [(one.group_id, one.regex) for one in threads.told] == [
        ("long", "t-.*"),
        ("short", "t-0"),
        ("long", "t-1.*"),
    ]
    assert threads.told[0].topics == tuple(sorted(names))
    assert threads.told[1].topics == ("t-0",)


def test_only_topics_that_the_client_may_know_of_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(world)
    names = [f"t-{number}" for number in range(EXPRESSION_NAMES_PER_PIECE + 1)]
    resolver = threads.resolver(names, monkeypatch)

    async def resolve() -> None:
        resolver.begin(Unresolved("g", ("t-.*",), sees=lambda name: name.endswith("7")))
        await world.sleep(5)

    world.run(resolve())
    assert threads.told[0].topics == tuple(sorted(name for name in names if name.endswith("7")))


def test_with_acls_an_expression_is_looked_at_again_after_a_while(coordinator: Consumers) -> None:
    """Nobody tells a group that a member may know of more topics now."""
    coordinator.topics.make("u", 2)
    visible = {"t"}
    a = Consumer(coordinator, "a", topics=None, regex="t|u", sees=visible.__contains__)
    a.join()
    assert a.partitions == [0, 1, 2, 3]
    visible.add("u")
    a.beat(sees=visible.__contains__)
    assert a.partitions == [0, 1, 2, 3]
    for _ in range(REGEX_ASKED_INTERVAL_MS // 30_000 + 1):
        coordinator.sleep(30_000)
        a.beat(sees=visible.__contains__)
    assert a.partitions == [0, 0, 1, 1, 2, 3]


def test_what_is_no_expression_here_stands_for_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As recorded by a coordinator that knows more."""
    threads = Threads(world)
    resolver = threads.resolver(["t"], monkeypatch)
    resolver.begin(Unresolved(GROUP, ("[",)))
    world.run(world.sleep(1))

    assert [one.topics for one in threads.told] == [()]
