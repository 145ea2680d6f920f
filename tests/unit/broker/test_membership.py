"""A broker's session in the store, and how it comes by another one. R6, R7."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from moldau.broker.membership import LIVE, Membership
from moldau.sim.world import World
from moldau.store.memory import MemoryStore, Tree
from moldau.store.port import Create, Operation, Unavailable

NODE_ID = 1


class Interrupted(MemoryStore):
    """Out of reach while the test says so. A session that is ended meanwhile is over here, and soon for the others."""

    is_away = False

    async def multi(self, operations: Sequence[Operation]) -> None:
        self._reach()
        await super().multi(operations)

    async def end_session(self) -> None:
        if self.is_away:
            session_id = self.session_id
            if session_id is not None:
                self.tree.tell(self.tree.end_session(session_id))
            self.session_over(session_id, tell=False)
        self._reach()
        await super().end_session()

    def _reach(self) -> None:
        if self.is_away:
            raise Unavailable("it cannot be reached")


class Stage:
    def __init__(self, world: World) -> None:
        self.world = world
        runtime = world.host("broker").runtime
        self.tasks = runtime.tasks
        self.store = Interrupted(Tree(), runtime.tasks, holder="broker")
        self.joined_again = 0
        self.membership = Membership(
            self.store,
            runtime,
            NODE_ID,
            on_elected=lambda: None,
            on_session_end=lambda: None,
            on_joined_again=self._note_joined,
            on_controller=lambda: None,
        )

    def _note_joined(self) -> None:
        self.joined_again += 1

    async def join(self) -> None:
        await self.tasks.spawn(self.membership.join(("broker", 9092)), name="join")

    @property
    def is_known(self) -> bool:
        """Whether others see the broker, in the session that it takes for its own."""
        entry = self.store.tree.entries.get(f"{LIVE}/{NODE_ID}")
        return entry is not None and entry.value.decode().endswith(self.membership.session.hex)

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if condition():
                return
            await self.world.sleep(0.01)
        raise AssertionError("in vain")


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        world.run(scene(Stage(world)))
        assert not world.failures


def test_a_broker_that_cannot_even_end_its_session_joins_again_when_the_store_is_back() -> None:
    async def scene(stage: Stage) -> None:
        await stage.join()
        stage.store.is_away = True
        await stage.tasks.spawn(stage.membership.stand_again(), name="stand again")
        await stage.world.sleep(3.0)
        assert not stage.membership.is_joined
        stage.store.is_away = False
        await stage.until(lambda: stage.joined_again == 1)
        assert stage.is_known

    play(scene)


def test_a_session_that_ends_while_the_broker_joins_again_is_followed_by_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.join()
        double = MemoryStore(stage.store.tree, stage.tasks, holder="double")
        await stage.tasks.spawn(double.begin_session(lambda: None), name="begin")
        stage.store.expire()
        stage.store.tree.multi([Create(f"{LIVE}/{NODE_ID}", b"", ephemeral=True)], double.session_id)
        await stage.world.sleep(1.0)
        stage.store.expire()
        await stage.world.sleep(1.0)
        double.expire()
        await stage.until(lambda: stage.joined_again == 1)
        session_id = stage.store.session_id
        await stage.world.sleep(60.0)
        assert stage.is_known
        assert stage.store.session_id == session_id
        assert stage.joined_again == 1

    play(scene)


def test_a_session_that_ends_while_the_broker_stands_again_is_followed_by_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.join()
        stage.store.expire()
        await stage.tasks.spawn(stage.membership.stand_again(), name="stand again")
        await stage.until(lambda: stage.joined_again == 1)
        session_id = stage.store.session_id
        await stage.world.sleep(60.0)
        assert stage.is_known
        assert stage.store.session_id == session_id
        assert stage.joined_again == 1

    play(scene)
