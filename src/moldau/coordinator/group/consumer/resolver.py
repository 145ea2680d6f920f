"""Finds the topics of groups' regular expressions aside, where that takes too long for a heartbeat.

A thread matches, which lets the interpreter's lock go, and the shard hears of each expression when all names were
looked at. One piece of names is matched at a time on a broker, and groups take turns: one group's expressions hold up
neither the loop, nor the threads that the disk needs, nor another group's expressions. A group whose expressions are
looked for is not looked at again meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.base.limits import EXPRESSION_NAMES_ASKED_INLINE_MAX, EXPRESSION_NAMES_PER_PIECE
from moldau.coordinator.expressions import BadExpression, Expression, expression
from moldau.coordinator.group.consumer.messages import Resolved, Unresolved
from moldau.coordinator.group.consumer.topics import Topics
from moldau.coordinator.group.messages import Sees
from moldau.runtime.ports import Tasks


class Resolver:
    """`tell` brings what was found to the shard of the group."""

    def __init__(self, tasks: Tasks, topics: Topics, tell: Callable[[Resolved], object]) -> None:
        self._tasks = tasks
        self._topics = topics
        self._tell = tell
        self._groups: set[str] = set()
        self._turn = asyncio.Lock()

    def begin(self, wanted: Unresolved) -> None:
        if wanted.group_id not in self._groups:
            self._groups.add(wanted.group_id)
            self._tasks.spawn(self._resolve(wanted), name=f"resolve expressions of {wanted.group_id}")

    async def _resolve(self, wanted: Unresolved) -> None:
        try:
            version, names = self._topics.version, list(self._topics.topics)
            for regex in wanted.regexes:
                found = await self._matching(regex, names, wanted.sees)
                self._tell(Resolved(wanted.group_id, regex, found, version))
        finally:
            self._groups.discard(wanted.group_id)

    async def _matching(self, regex: str, names: list[str], sees: Sees | None) -> tuple[str, ...]:
        """Internal topics, too: as in Kafka, it is for the expression to leave them out."""
        found: list[str] = []
        for start in range(0, len(names), EXPRESSION_NAMES_PER_PIECE):
            async with self._turn:
                matcher = matcher_of(regex)
                if matcher is None:
                    return ()
                piece = names[start : start + EXPRESSION_NAMES_PER_PIECE]
                matching = await self._tasks.in_thread(matcher.matching, piece)
                found += matching if sees is None else await self._seen(matching, sees)
        return tuple(await self._tasks.in_thread(sorted, found))

    async def _seen(self, names: list[str], sees: Sees) -> list[str]:
        """Those that the client may know of; each question takes microseconds."""
        found: list[str] = []
        for start in range(0, len(names), EXPRESSION_NAMES_ASKED_INLINE_MAX):
            found += filter(sees, names[start : start + EXPRESSION_NAMES_ASKED_INLINE_MAX])
            await self._tasks.sleep(0)
        return found


def matcher_of(regex: str) -> Expression | None:
    """None where it is no expression: recorded by a coordinator that knows more."""
    try:
        return expression(regex)
    except BadExpression:
        return None
