"""Requests to another broker that carry what many callers ask: collected, bounded, lost together, never sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from moldau.base.limits import OUTBOX_ITEMS_MAX, OUTBOX_WEIGHT_PER_REQUEST
from moldau.broker.outbox import Load, Outbox
from moldau.peers.errors import Disconnected
from moldau.sim.world import World


class Item(NamedTuple):
    name: str
    key: str
    weight: int = 1


class Bench:
    """A broker that answers when the test says so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: list[list[str]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.outcomes: dict[str, str] = {}
        self.tasks = world.host("broker").runtime.tasks
        self.outbox = Outbox[Item, str](
            self.tasks,
            self,  # type: ignore[arg-type]
            "markers",
            self._send,
            lambda item: Load(item.key, item.weight),
            lambda item: f"lost {item.name}",
        )

    def peer(self, broker_id: int, lane: str) -> Any:
        assert lane == "markers"
        if broker_id == 404:
            raise Disconnected("not known")
        return broker_id

    async def _send(self, _peer: Any, items: Sequence[Item]) -> list[str]:
        self.sent.append([item.name for item in items])
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]
        return [f"done {item.name}" for item in items]

    def ask(self, *items: Item, broker_id: int = 2) -> None:
        for item in items:
            self.tasks.spawn(self._ask(broker_id, item), name=item.name)
        self.settle()

    async def _ask(self, broker_id: int, item: Item) -> None:
        self.outcomes[item.name] = await self.outbox.ask(broker_id, item)

    def answer(self, error: Exception | None = None) -> None:
        if error is None:
            self.answers[-1].set_result(None)
        else:
            self.answers[-1].set_exception(error)
        self.settle()

    def settle(self) -> None:
        self.world.run(self.world.sleep(0.01))


@pytest.fixture
def bench() -> Iterator[Bench]:
    with World("outbox") as world:
        yield Bench(world)
        assert not world.failures


def item(name: str, key: str | None = None, weight: int = 1) -> Item:
    return Item(name, key or name, weight)


def test_what_comes_while_a_request_is_under_way_goes_out_together(bench: Bench) -> None:
    bench.ask(item("a"))
    bench.ask(item("b"), item("c"), item("d"))
    assert bench.sent == [["a"]]
    bench.answer()
    assert bench.sent == [["a"], ["b", "c", "d"]]
    bench.answer()
    assert bench.outcomes == {name: f"done {name}" for name in "abcd"}


def test_brokers_do_not_wait_for_each_other(bench: Bench) -> None:
    bench.ask(item("a"), broker_id=2)
    bench.ask(item("b"), broker_id=3)
    assert bench.sent == [["a"], ["b"]]


def test_two_that_an_answer_could_not_tell_apart_go_out_one_after_the_other(bench: Bench) -> None:
    bench.ask(item("a"))
    bench.ask(item("b", "producer"), item("c", "producer"), item("d"))
    bench.answer()
    bench.answer()
    assert bench.sent == [["a"], ["b"], ["c", "d"]]


def test_a_request_names_a_bounded_number_of_partitions(bench: Bench) -> None:
    bench.ask(item("a"))
    whole = OUTBOX_WEIGHT_PER_REQUEST
    bench.ask(item("b", weight=whole - 1), item("c", weight=2), item("d", weight=2 * whole), item("e"))
    for _ in range(4):
        bench.answer()
    assert bench.sent == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_a_lost_request_is_told_to_those_who_were_in_it_and_not_sent_again(bench: Bench) -> None:
    bench.ask(item("a"), item("b"))
    bench.ask(item("c"))
    bench.answer(Disconnected("gone"))
    bench.answer()
    assert bench.sent == [["a", "b"], ["c"]]
    assert bench.outcomes == {"a": "lost a", "b": "lost b", "c": "done c"}


def test_a_broker_that_is_not_known_is_not_waited_for(bench: Bench) -> None:
    bench.ask(item("a"), broker_id=404)
    assert bench.outcomes == {"a": "lost a"}


def test_who_waits_for_a_broker_that_is_fenced_is_told_at_once_and_may_ask_again(bench: Bench) -> None:
    bench.ask(item("a"))
    bench.ask(item("b"))
    bench.outbox.on_brokers_changed(lambda broker_id: broker_id != 2)
    bench.settle()
    assert bench.outcomes == {"a": "lost a", "b": "lost b"}
    bench.ask(item("c"))
    bench.answer()
    assert bench.outcomes["c"] == "done c"


def test_a_broker_that_is_alive_is_waited_for(bench: Bench) -> None:
    bench.ask(item("a"))
    bench.outbox.on_brokers_changed(lambda _broker_id: True)
    bench.settle()
    assert bench.outcomes == {}
    bench.answer()
    assert bench.outcomes == {"a": "done a"}


def test_only_so_many_wait(bench: Bench) -> None:
    bench.ask(*(item(str(number)) for number in range(OUTBOX_ITEMS_MAX + 10)))
    lost = [name for name, outcome in bench.outcomes.items() if outcome.startswith("lost")]
    assert 0 < len(lost) <= 10


def test_at_the_end_nobody_is_left_waiting(bench: Bench) -> None:
    bench.ask(item("a"))
    bench.ask(item("b"))
    bench.outbox.close()
    bench.settle()
    assert bench.outcomes == {"a": "lost a", "b": "lost b"}
