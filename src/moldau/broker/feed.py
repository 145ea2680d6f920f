"""The broker's image of the cluster, kept current: the controller's changes, one after the other, each acted on.

From a controller on this broker they are taken as they are; from one elsewhere by a long poll (`wire.cluster`). Where
changes are missing the whole image is taken over, and what differs is acted on. A poll tells how far this broker has
come, and so when others can rely on it; a broker that acts on many changes for long says meanwhile that it lives. Where
acting on a change fails the broker is not what its image says: it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from moldau.broker.channel import ControllerChannel, NoController
from moldau.controller.controller import Controller
from moldau.metadata.codec import decoded
from moldau.metadata.difference import Difference, difference, touched
from moldau.metadata.image import ClusterImage, image_from
from moldau.metadata.records import Delta, Position, Record
from moldau.peers.errors import Busy, Disconnected
from moldau.runtime.ports import Tasks
from moldau.wire.frames import WireError

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.02
BUSY_S_MAX = 120.0
"""What takes longer than this is taken to hang: others do without this broker."""
NO_IMAGE = Position(-1, -1)

Act = Callable[[Sequence[Record] | None, Difference], Awaitable[None]]
"""Acts on a change of the image: with its records, or None where the image was taken over whole."""


class NotActedOn(Exception):
    """Its cause is an error of this broker."""


class ImageFeed:
    def __init__(
        self,
        tasks: Tasks,
        node_id: int,
        image: ClusterImage,
        channel: ControllerChannel,
        active: Callable[[], Controller | None],
    ) -> None:
        self._tasks = tasks
        self._node_id = node_id
        self._image = image
        self._channel = channel
        self._active = active
        self._act: Act | None = None
        self._on_failure: Callable[[BaseException], object] = lambda _error: None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._running: asyncio.Task[None] | None = None
        self._saying_busy: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Wait for a first image of the cluster. Nothing is to be acted on yet."""
        while not self._image.cluster_id:
            await self._step_or_pause()

    def start(self, act: Act, on_failure: Callable[[BaseException], object]) -> None:
        """Follow from now on, until a change cannot be acted on."""
        self._act, self._on_failure = act, on_failure
        self._running = self._tasks.spawn(self._run(), name="follow the cluster")

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
        for _, future in self._waiting:
            future.cancel()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the image, as far as it was acted on, is so."""
        if condition():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        await future

    async def _run(self) -> None:
        try:
            while True:
                await self._step_or_pause()
        except Exception as error:
            cause = error.__cause__ or error
            self._on_failure(cause)
            waiting, self._waiting = self._waiting, []
            for _, future in waiting:
                if not future.done():
                    future.set_exception(cause)

    async def _step_or_pause(self) -> None:
        try:
            await self._step()
        except (Disconnected, Busy, NoController, WireError, ValueError) as error:
            log.debug("cannot follow the cluster now: %s", error)
            await self._tasks.sleep(RETRY_PAUSE_S)

    async def _step(self) -> None:
        controller = self._active()
        if controller is not None:
            await self._follow_here(controller)
        else:
            await self._follow_elsewhere()

    @property
    def _position(self) -> Position:
        """What this broker has seen; nothing at all, before its first image."""
        return self._image.position if self._image.cluster_id else NO_IMAGE

    async def _follow_here(self, controller: Controller) -> None:
        deltas = controller.deltas.since(self._position)
        if deltas is None:
            await self._take_over(image_from(controller.snapshot()))
        elif deltas:
            for delta in deltas:
                await self._apply(delta)
        else:
            controller.applied(self._node_id, self._image.position)
            await controller.deltas.next_delta()
            return
        controller.applied(self._node_id, self._image.position)

    async def _follow_elsewhere(self) -> None:
        answer, pieces = await self._channel.feed(self._position)
        busy = self._tasks.call_later(self._channel.busy_after_s, self._say_busy)
        try:
            await self._take(answer, pieces)
        finally:
            busy.cancel()
            if self._saying_busy is not None:
                self._saying_busy.cancel()
                self._saying_busy = None

    def _say_busy(self) -> None:
        """To be acted on is so much that the controller would take this broker for one that it cannot reach."""
        self._saying_busy = self._tasks.spawn(
            self._keep_saying_busy(), name="busy with changes of the cluster"
        )

    async def _keep_saying_busy(self) -> None:
        for _ in range(int(BUSY_S_MAX / self._channel.busy_after_s)):
            try:
                await self._channel.tell_busy()
            except (Disconnected, Busy, NoController, WireError) as error:
                log.debug("the controller does not hear that this broker is busy: %s", error)
            await self._tasks.sleep(self._channel.busy_after_s)

    async def _take(self, answer: dict[str, Any], pieces: Sequence[bytes]) -> None:
        records = [await self._decode(piece) for piece in pieces]
        if "snapshot" in answer:
            image = ClusterImage(str(answer["cluster_id"]))
            for number, some in enumerate(records):
                for record in some:
                    image.apply(record)
                if number % 4 == 3:
                    await self._tasks.sleep(0)
            image.position = Position(*answer["snapshot"])
            if image.position < self._position:
                raise NoController("it was the controller, and knows less than this broker")
            await self._take_over(image)
            return
        start = 0
        for epoch, sequence, count in _deltas(answer):
            some = [record for piece in records[start : start + count] for record in piece]
            start += count
            await self._apply(Delta(epoch, sequence, tuple(some)))

    async def _decode(self, piece: bytes) -> list[Record]:
        await self._tasks.sleep(0)
        return next(decoded((piece,)))

    async def _apply(self, delta: Delta) -> None:
        image = self._image
        names = touched(delta.records)
        before = {name: image.topics[name] for name in names if name in image.topics}
        image.apply_delta(delta)
        after = {name: image.topics[name] for name in names if name in image.topics}
        await self._act_on(delta.records, difference(self._node_id, before, after))

    async def _take_over(self, image: ClusterImage) -> None:
        before = dict(self._image.topics)
        self._image.become(image)
        await self._act_on(None, difference(self._node_id, before, dict(self._image.topics)))

    async def _act_on(self, records: Sequence[Record] | None, changes: Difference) -> None:
        if self._act is not None:
            try:
                await self._act(records, changes)
            except Exception as error:
                raise NotActedOn from error
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for condition, future in waiting:
            if future.done():
                continue
            if condition():
                future.set_result(None)
            else:
                self._waiting.append((condition, future))


def _deltas(answer: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(int(epoch), int(sequence), int(count)) for epoch, sequence, count in answer.get("deltas", ())]
