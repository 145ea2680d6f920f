"""The answer to one request, given when it is known: at once, after the high watermark, or after a rebalance.

A parked answer is this object and nothing else: no coroutine and no timer of its own. Who parks it fills it once; who
waits for it (a connection's slot, or a coroutine that gathers several) gives a callback. The state machines handle
replies as opaque tokens: they never look at what became of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.invariant import invariant

_UNANSWERED = object()


class Reply:
    """`failed` makes the API's own answer from an error code that is not the state machine's to give."""

    __slots__ = ("_callback", "_failed", "_response")

    def __init__(self, failed: Callable[[ErrorCode], Any]) -> None:
        self._failed = failed
        self._response: Any = _UNANSWERED
        self._callback: Callable[[Any], object] | None = None

    @property
    def is_answered(self) -> bool:
        return self._response is not _UNANSWERED

    @property
    def response(self) -> Any:
        invariant(self.is_answered, "a reply is read before it is answered")
        return self._response

    def answer(self, response: Any) -> None:
        """Exactly once."""
        invariant(not self.is_answered, "a request is answered twice")
        self._response = response
        if self._callback is not None:
            self._callback(response)

    def fail(self, error: ErrorCode) -> None:
        """Answer with an error of the coordinator itself: it is loading, elsewhere, or cannot write."""
        self.answer(self._failed(error))

    def then(self, callback: Callable[[Any], object]) -> None:
        """Call back with the response, now or when it is there."""
        if self.is_answered:
            callback(self._response)
        else:
            self._callback = callback

    def map(self, change: Callable[[Any], Any]) -> Reply:
        """A reply with what `change` makes of this one's response: the shape that an older version needs."""
        changed = Reply(self._failed)
        self.then(lambda response: changed.answer(change(response)))
        return changed

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.is_answered:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_response: object) -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self.then(wake)
            yield from waiting
        return self._response
