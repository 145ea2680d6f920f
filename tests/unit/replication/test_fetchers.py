"""Which broker a partition is fetched from. R2."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from moldau.replication.fetchers import Fetchers


class Slow:
    """A fetcher that gives a partition up when the test says so."""

    def __init__(self) -> None:
        self.followed: set[object] = set()
        self.may_forget = asyncio.Event()

    def follow(self, partition: object) -> None:
        self.followed.add(partition)

    async def forget(self, partition: object) -> None:
        await self.may_forget.wait()
        self.followed.discard(partition)


class Followed:
    is_offline = False

    def __init__(self, leader: int) -> None:
        self.state = SimpleNamespace(leader=leader)


def test_a_leader_that_is_replaced_while_the_one_before_is_given_up_is_not_followed() -> None:
    async def play() -> None:
        nothing: Any = None
        fetchers = Fetchers(*[nothing] * 7)
        slow = {leader: Slow() for leader in (1, 2, 3)}
        fetchers._fetchers = slow  # type: ignore[assignment]
        partition: Any = Followed(1)
        await fetchers.follow(partition)
        partition.state = SimpleNamespace(leader=2)
        first = asyncio.ensure_future(fetchers.follow(partition))
        await asyncio.sleep(0)
        partition.state = SimpleNamespace(leader=3)
        second = asyncio.ensure_future(fetchers.follow(partition))
        third = asyncio.ensure_future(fetchers.forget(partition))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not (first.done() or second.done() or third.done()), "its log is not in order yet"
        slow[1].may_forget.set()
        await asyncio.gather(first, second, third)
        assert [leader for leader, one in slow.items() if partition in one.followed] == [3]

    asyncio.run(play())
