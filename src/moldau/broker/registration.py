"""A broker's registration with the controller: how it comes, comes back, and leaves in good order.

It registers when it has opened its logs, and again when it was fenced: each time with a new broker epoch, by which
others tell its lives apart (KIP-903). Registered, it is fenced until it has seen its registration and asks to serve.
Shutting down, it asks the controller to move its leaders first, and serves until they have moved (Kafka's controlled
shut-down). One task does all the asking, so that no two lives are registered at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.channel import ControllerChannel
from moldau.broker.feed import ImageFeed
from moldau.broker.membership import Membership
from moldau.controller.brokers import NO_EPOCH, Registration
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import BrokerInfo
from moldau.runtime.ports import Tasks

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.05
SHUT_DOWN_PAUSE_S = 0.02
SHUT_DOWN_PATIENCE_S = 30.0
SHUT_DOWN_FAILURES_MAX = 5
STORE_PAUSE_S = 0.5
"""After a write of the controller that has failed: the next one may not."""
PASSING = (ErrorCode.request_timed_out, ErrorCode.duplicate_broker_registration)
"""Of a duplicate: no other process has a session under this id (`Membership.join`), but the controller may not have
seen yet that the one of this broker's last life is over."""


class Refused(Exception):
    """The controller does not let this broker into the cluster."""


class Registrar:
    def __init__(
        self,
        tasks: Tasks,
        node_id: int,
        image: ClusterImage,
        channel: ControllerChannel,
        feed: ImageFeed,
        membership: Membership,
        boot_id: str,
    ) -> None:
        self._tasks = tasks
        self._node_id = node_id
        self._image = image
        self._channel = channel
        self._feed = feed
        self._membership = membership
        self._boot_id = boot_id
        self._listeners: Mapping[str, tuple[str, int] | None] = {}
        self._rack: str | None = None
        self._log_dirs: tuple[UUID, ...] = ()
        self._is_looking = False
        self._is_serving = False
        self._is_leaving = False
        self._served_epoch = NO_EPOCH
        """The last in which the cluster let it serve."""
        self.epoch = NO_EPOCH
        """Of this broker's life in the cluster."""
        self.on_registered: Callable[[], Awaitable[None]] | None = None
        """Called in each new epoch, while the broker is fenced: what the controller must know before it may lead."""

    async def begin(
        self,
        listeners: Mapping[str, tuple[str, int] | None],
        rack: str | None,
        log_dirs: tuple[UUID, ...],
        *,
        previous_epoch: int,
        lost: Sequence[TopicPartition],
    ) -> None:
        """Register for the first time; it is in the image when this returns.

        `previous_epoch`: of the life that was stopped cleanly before this one."""
        self._listeners, self._rack, self._log_dirs = listeners, rack, log_dirs
        while self._own is None:
            try:
                await self._register(previous_epoch, lost)
            except KafkaError as error:
                if error.code not in PASSING:
                    raise Refused(error.message or error.code.name) from error
                log.warning("the controller does not take broker %d in yet: %s", self._node_id, error)
                await self._tasks.sleep(RETRY_PAUSE_S)

    async def unfence(self) -> None:
        """Ask to serve; leaders are where the controller wants them, and known here, when this returns."""
        self._is_serving = True
        self.look()
        await self._feed.until(lambda: (own := self._own) is not None and not own.is_fenced)

    def look(self) -> None:
        """The image, or the session, is another: see whether this broker is in the cluster as it should be."""
        if (own := self._own) is not None and not own.is_fenced:
            self._served_epoch = own.epoch
        if not self._is_looking and self._is_serving and not self._is_leaving:
            self._is_looking = True
            self._tasks.spawn(self._look(), name="registration")

    def close(self) -> None:
        self._is_leaving = True

    @property
    def _own(self) -> BrokerInfo | None:
        """This life of the broker, as the cluster knows it."""
        own = self._image.registered.get(self._node_id)
        return own if own is not None and own.incarnation == self._membership.incarnation else None

    async def _look(self) -> None:
        try:
            while not self._is_leaving and self._membership.is_joined:
                own = self._own
                try:
                    if own is None or (own.is_fenced and own.epoch == self._served_epoch):
                        await self._register(self.epoch, ())  # nothing was lost: the process lives
                    elif own.is_fenced:
                        self.epoch = own.epoch
                        await self._channel.heartbeat(self.epoch)
                        await self._tasks.sleep(RETRY_PAUSE_S)
                    else:
                        return
                except KafkaError as error:
                    log.info("broker %d is not in the cluster yet: %s", self._node_id, error)
                    await self._tasks.sleep(RETRY_PAUSE_S)
        finally:
            self._is_looking = False

    async def _register(self, previous_epoch: int, lost: Sequence[TopicPartition]) -> None:
        registration = Registration(
            self._node_id,
            self._membership.incarnation,
            self._listeners,
            self._rack,
            self._log_dirs,
            self._boot_id,
            previous_epoch,
            lost,
            self._image.cluster_id,
        )
        session = self._membership.session
        self.epoch = await self._channel.register(registration)
        await self._feed.until(
            lambda: (
                ((own := self._own) is not None and own.epoch >= self.epoch)
                or self._is_leaving
                or self._membership.session != session  # what has become of it is looked at anew
            )
        )
        if self.on_registered is not None:
            await self.on_registered()

    async def shut_down(self, is_controlled: bool) -> bool:
        """Have the leaders moved that this broker has, while it goes on to serve; whether others lead them now."""
        self._is_leaving = True
        others = [broker for broker in self._image.brokers.values() if broker.id != self._node_id]
        if not is_controlled or not others or self._own is None:
            return False
        failures = 0
        for _ in range(int(SHUT_DOWN_PATIENCE_S / SHUT_DOWN_PAUSE_S)):
            try:
                _is_fenced, should_shut_down = await self._channel.heartbeat(self.epoch, wants_shut_down=True)
            except KafkaError as error:
                log.warning("leaders could not be moved before the end: %s", error)
                failures += 1
                if error.code is not ErrorCode.kafka_storage_error or failures >= SHUT_DOWN_FAILURES_MAX:
                    return False
                await self._tasks.sleep(STORE_PAUSE_S)
                continue
            if should_shut_down:
                return True
            await self._tasks.sleep(SHUT_DOWN_PAUSE_S)
        log.warning("leaders have not moved within %d s: the broker ends with them", SHUT_DOWN_PATIENCE_S)
        return False
