"""The controller's image and the store, kept in step: each write changes both, or neither.

One entry, `/controller/state`, fences everything: every write puts it with the version that this controller knows, its
epoch and the next sequence. A controller that was replaced finds another version there, and changes nothing (`Fenced`).
Where the store cannot say whether a write was done (`Unknown`), the entry is read back: with this controller's mark and
sequence it was done; with the old version it was not, and is tried again, which the version makes safe.

A long change is cut into several writes (`writes`), each with a delta of its own; what an interrupted one leaves is
removed before the next, or by the next controller.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from uuid import UUID

from moldau.controller import layout
from moldau.controller.layout import CLUSTER_ID, ControllerState
from moldau.controller.loading import Pause, load, no_pause
from moldau.controller.writes import Step, debris_after, steps_of, tidying_steps
from moldau.metadata.image import ClusterImage, image_from, snapshot_of
from moldau.metadata.records import NOWHERE, ControllerElected, Delta, Position, Record, TopicCreated
from moldau.runtime.ports import Random
from moldau.store.port import Conflict, Create, Entry, Operation, Put, SessionEnded, Store, TooNew, Unknown

__all__ = ["CLUSTER_ID", "Fenced", "PersistentImage", "base64_of", "check_layout", "new_uuid"]

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 8
"""How often a write whose outcome is not known is looked after before the controller gives up its office."""
FIRST_PAUSE_S = 0.05

Settle = Callable[[ClusterImage], Sequence[Record]]


class Fenced(Exception):
    """Another controller has taken over, or the outcome of a write cannot be found out: this one changes nothing."""


def new_uuid(random: Random) -> UUID:
    """An id whose base64 form does not begin with '-', which command lines would take for an option."""
    while True:
        value = random.uuid()
        if not base64_of(value).startswith("-"):
            return value


def base64_of(value: UUID) -> str:
    """How Kafka writes ids."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


async def check_layout(store: Store) -> None:
    """TooNew where the store has a later layout than this version knows, OSError where it says none that can be read.
    None is that of before it had a number.
    """
    entry = await store.get(layout.LAYOUT)
    if entry is None:
        return
    if not entry.value.isdigit():
        raise OSError(
            f"the cluster store's entry {layout.LAYOUT} is damaged: it has {entry.value[:20]!r}, and no number"
        )
    if (number := int(entry.value)) > layout.LAYOUT_VERSION:
        raise TooNew(
            f"the cluster store has layout {number}, and this version knows {layout.LAYOUT_VERSION} at most"
        )


class PersistentImage:
    """What the active controller has of the cluster. `base` is the position that it took over at, `begun` the writes
    that it needed for that; a broker's image at `base` goes on with them.
    """

    def __init__(self, store: Store, state: ControllerState, version: int, pause: Pause) -> None:
        self.image = ClusterImage("")
        self.base: Position = NOWHERE
        self.begun: list[Delta] = []
        self._store = store
        self._state = state
        self._version = version
        self._pause = pause
        self._debris: list[str] = []

    @classmethod
    async def take_over(
        cls,
        store: Store,
        random: Random,
        controller_id: int,
        *,
        warm: ClusterImage | None = None,
        pause: Pause = no_pause,
        settle: Settle = lambda _image: (),
    ) -> PersistentImage:
        """Become the controller: claim the store with the next epoch, then read what is there, unless the warm image
        is at exactly the position that the store had. Fenced where another was faster, TooNew where a later version has
        been the controller. `settle` says what must be different before anything else is decided.
        """
        await check_layout(store)
        entry = await store.get(layout.STATE)
        before = _state_before(entry)
        claimed = ControllerState(
            before.epoch + 1, before.sequence + 1, controller_id, random.uuid().hex, before.unfinished
        )
        self = cls(store, before, -1 if entry is None else entry.version, pause)
        await self._multi(await _first_operations(store, random), claimed)
        self.base = before.position
        is_warm = warm is not None and warm.position == before.position != NOWHERE and not before.unfinished
        converted: Sequence[TopicCreated] = ()
        if warm is not None and is_warm:
            self.image = image_from(snapshot_of(warm))
        else:
            loaded = await load(store, pause)
            self.image, self._debris, converted = loaded.image, list(loaded.garbage), loaded.converted
            self.image.position = before.position
        self.begun = [self._apply(claimed, (ControllerElected(controller_id, claimed.epoch),))]
        async for delta in self._write(tidying_steps(self._debris, converted)):
            self.begun.append(delta)
        async for delta in self.write(settle(self.image)):
            self.begun.append(delta)
        return self

    async def write(self, records: Iterable[Record]) -> AsyncIterator[Delta]:
        """Make records durable and apply them, in one write or several; each is given when it is done.

        Fenced, or OSError where the store refused: then the writes that were given stand, and nothing else.
        """
        async for delta in self._write(steps_of(self.image, records, self._debris)):
            yield delta

    async def _write(self, steps: Iterator[Step]) -> AsyncIterator[Delta]:
        done: list[Step] = []
        step = next(steps, None)
        while step is not None:
            after = next(steps, None)
            state = self._state._replace(sequence=self._state.sequence + 1, unfinished=after is not None)
            try:
                await self._multi(step.operations, state)
            except BaseException:
                self._debris = debris_after(done, [step, *([] if after is None else [after]), *steps])
                raise
            if after is None:
                self._debris = []
            yield self._apply(state, step.records)
            done.append(step)
            step = after

    def _apply(self, state: ControllerState, records: tuple[Record, ...]) -> Delta:
        delta = Delta(state.epoch, state.sequence, records)
        self.image.apply_delta(delta)
        return delta

    async def _multi(self, operations: Sequence[Operation], state: ControllerState) -> None:
        """One write, fenced; it was done when this returns."""
        value = layout.state_value(state)
        own = Create(layout.STATE, value) if self._version < 0 else Put(layout.STATE, value, self._version)
        has_doubt = False
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self._store.multi([own, *operations])
                break
            except Conflict as conflict:
                if has_doubt and await self._was_done(state):
                    break
                raise Fenced(f"another controller was faster: {conflict}") from conflict
            except SessionEnded as ended:  # nothing was done, and another is elected by now
                if has_doubt and await self._was_done(state):
                    break
                raise Fenced(f"the session is over: {ended}") from ended
            except (Unknown, OSError) as error:
                if isinstance(error, OSError) and not has_doubt:
                    raise
                has_doubt = True
                log.warning("a write to the cluster store may have been done or not: %s", error)
                await self._pause(FIRST_PAUSE_S * 2**attempt)
                if await self._was_done(state):
                    break
        else:
            raise Fenced("the outcome of a write could not be found out")
        self._version += 1
        self._state = state

    async def _was_done(self, state: ControllerState) -> bool:
        """Whether a write was done. Where that cannot be read now it counts as not: trying again does no harm."""
        try:
            entry = await self._store.get(layout.STATE)
        except (Unknown, OSError):
            return False
        version = -1 if entry is None else entry.version
        if version == self._version:
            return False
        if entry is not None and layout.state_of(entry.value) == state:
            return True
        raise Fenced("another controller was faster")


def _state_before(entry: Entry | None) -> ControllerState:
    return ControllerState(0, 0, -1, "") if entry is None else layout.state_of(entry.value)


async def _first_operations(store: Store, random: Random) -> list[Operation]:
    """What a cluster gets with its first controller, or with the first that knows of it."""
    operations: list[Operation] = []
    if await store.get(CLUSTER_ID) is None:
        operations.append(Create(CLUSTER_ID, base64_of(new_uuid(random)).encode()))
    number = b"%d" % layout.LAYOUT_VERSION
    if (entry := await store.get(layout.LAYOUT)) is None:
        operations.append(Create(layout.LAYOUT, number))
    elif entry.value != number:
        operations.append(Put(layout.LAYOUT, number, entry.version))
    if await store.get(layout.PRODUCER_IDS) is None:
        operations.append(Create(layout.PRODUCER_IDS, b"0"))
    return operations
