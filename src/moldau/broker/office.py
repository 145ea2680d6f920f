"""The controller's office on this broker: taken when it is elected, left when another is, or its session ends.

Taking it claims the store with the next epoch; from then on an earlier controller changes nothing. The office watches
who lives (`/brokers/live`), fences whoever does not, and whoever has a session but has not been heard of for as long as
one may be silent: it is cut off from here, and could change no in-sync set. Where it has just begun a session again
itself, the store was gone, perhaps for all: the others are given the time of a session to come back before they are
fenced. Now and then it looks for leaders that are not where they should be. R6, R8.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from moldau.base.errors import KafkaError
from moldau.broker.membership import LIVE, live_brokers
from moldau.controller.controller import Controller, HasConfig
from moldau.controller.min_isr import decide_one_min_isr
from moldau.controller.persistence import Fenced, PersistentImage
from moldau.metadata.image import ClusterImage
from moldau.runtime.ports import Runtime
from moldau.store.port import SessionEnded, Store, TooNew, Unknown, Watch

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
LEADERLESS_INTERVAL_S = 5.0
LOOKS_PER_SILENCE = 4
OUTAGE_SESSIONS = 2
"""An office taken within the time of so many sessions after one's own began again is taken after an outage."""


class Office:
    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        node_id: int,
        broker: HasConfig,
        image: Callable[[], ClusterImage | None],
        began_again_s: Callable[[], float],
        on_lost: Callable[[], Awaitable[None]],
    ) -> None:
        """`image` is the broker's own: the controller begins with it where it is current.
        `began_again_s`: when this broker began its session, if it is not its first. `on_lost`: another controller was
        faster, though this one was elected: stand again."""
        self._store = store
        self._runtime = runtime
        self._tasks = runtime.tasks
        self._node_id = node_id
        self._broker = broker
        self._image = image
        self._began_again_s = began_again_s
        self._on_lost = on_lost
        self._watch: Watch | None = None
        self._silence_s_max: float = broker.config["broker.session.timeout.ms"] / 1000
        self._seen_s: dict[int, float] = {}
        """When each broker was last heard of, by its polls for the cluster's changes."""
        self._grace_until_s = 0.0
        """Until then nobody is fenced for having no session."""
        self._term = 0
        self._is_checking = self._must_check = False
        self.controller: Controller | None = None
        """While this broker is the controller, as far as it knows."""
        self.elections = 0

    def take(self) -> None:
        """This broker was elected."""
        self._term += 1
        self._tasks.spawn(self._take(self._term), name="become the controller")

    def leave(self, reason: str) -> None:
        """It is not the controller any more, for certain."""
        self._term += 1
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        controller, self.controller = self.controller, None
        if controller is not None:
            controller.resign(reason)

    async def _take(self, term: int) -> None:
        random = self._runtime.random.fork("controller")
        while term == self._term:
            try:
                state = await PersistentImage.take_over(
                    self._store,
                    random,
                    self._node_id,
                    warm=self._image(),
                    pause=self._tasks.sleep,
                    settle=lambda image: decide_one_min_isr(image, self._broker.config),
                )
                break
            except Fenced as error:
                log.info("another broker has become the controller: %s", error)
                await self._on_lost()
                return
            except TooNew as error:
                log.error("this broker cannot be the controller any more, and leaves it to others: %s", error)
                await self._tasks.sleep(RETRY_PAUSE_S)
                await self._on_lost()
                return
            except (OSError, Unknown, SessionEnded) as error:
                log.warning("cannot become the controller yet: %s", error)
                await self._tasks.sleep(RETRY_PAUSE_S)
        if term != self._term:
            return
        self.controller = Controller(
            state, random, self._broker, self._tasks, on_fenced=lambda _reason: self._fenced(term)
        )
        self.elections += 1
        now_s = self._runtime.clock.monotonic()
        self._seen_s = dict.fromkeys(self.controller.image.registered, now_s)
        # It may have waited for the entries of sessions that ended with its own; the others wait for theirs still.
        was_store_gone = now_s - self._began_again_s() < OUTAGE_SESSIONS * self._silence_s_max
        self._grace_until_s = now_s + self._silence_s_max if was_store_gone else now_s
        image = self.controller.image
        is_alone = not image.registered.keys() - {self._node_id}
        level = logging.DEBUG if is_alone else logging.INFO
        log.log(level, "broker %d is the controller, in epoch %d", self._node_id, image.controller_epoch)
        self._watch = self._store.watch(LIVE, self._check_later)
        self._check_later()
        self._tasks.spawn(self._look_after(term), name="leaders")

    def note_seen(self, broker_id: int) -> None:
        """A broker has asked for something."""
        self._seen_s[broker_id] = self._runtime.clock.monotonic()

    def _fenced(self, term: int) -> None:
        if term == self._term:
            self.leave("another controller has taken over")
            self._tasks.spawn(self._lost(), name="stand again")

    async def _lost(self) -> None:
        await self._on_lost()

    # Who lives

    def _check_later(self) -> None:
        self._must_check = True
        if not self._is_checking:
            self._is_checking = True
            self._tasks.spawn(self._check(), name="who lives")

    async def _check(self) -> None:
        try:
            while self._must_check and (controller := self.controller) is not None:
                self._must_check = False
                try:
                    await self._fence_dead(controller)
                except (OSError, Unknown, KafkaError) as error:
                    log.info("who lives is not known yet: %s", error)
                    self._must_check = True
                    await self._tasks.sleep(RETRY_PAUSE_S)
        finally:
            self._is_checking = False

    async def _fence_dead(self, controller: Controller) -> None:
        live = await live_brokers(self._store)
        awaited = frozenset(controller.image.brokers.keys() - live.keys())
        left_s = self._grace_until_s - self._runtime.clock.monotonic()
        if awaited and left_s > 0:
            self._tasks.call_later(left_s, self._check_later)
        await controller.brokers_live(live, awaited if left_s > 0 else ())

    async def _look_after(self, term: int) -> None:
        """Leaders for partitions that can have one by now; preferred ones, every so often."""
        interval_s = min(LEADERLESS_INTERVAL_S, self._silence_s_max / LOOKS_PER_SILENCE)
        since_leaderless_s = since_rebalance_s = 0.0
        while term == self._term:
            await self._tasks.sleep(interval_s)
            since_leaderless_s += interval_s
            since_rebalance_s += interval_s
            controller = self.controller
            if term != self._term or controller is None:
                return
            try:
                await self._fence_silent(controller)
                if since_leaderless_s >= LEADERLESS_INTERVAL_S:
                    since_leaderless_s = 0.0
                    await controller.elect_leaderless()
                if since_rebalance_s >= self._broker.config["leader.imbalance.check.interval.seconds"]:
                    since_rebalance_s = 0.0
                    if self._broker.config["auto.leader.rebalance.enable"]:
                        await controller.rebalance()
            except KafkaError as error:
                log.info("leaders could not be looked after: %s", error)

    async def _fence_silent(self, controller: Controller) -> None:
        before_s = self._runtime.clock.monotonic() - self._silence_s_max
        silent = {
            broker.id: broker.incarnation
            for broker in controller.image.brokers.values()
            if broker.id != self._node_id and self._seen_s.get(broker.id, before_s) < before_s
        }
        if silent:
            log.warning("not heard of, and fenced: broker %s", ", ".join(map(str, sorted(silent))))
            await controller.fence(silent)
