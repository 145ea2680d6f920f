"""The controller's driver: decide, write to the store, apply to the image, tell the broker; one change at a
time.

Decisions are in `topics` and `configs`, and pure. A change is answered when it is durable and this broker
acts on it. Where the store fails, nothing has changed and the answer says so; where another controller was
faster, this one changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.controller.configs import Alterations, AlterOutcome, decide_alter
from moldau.controller.leaders import decide_new_epochs
from moldau.controller.persistence import PersistentImage, new_uuid
from moldau.controller.producer_ids import ProducerIds
from moldau.controller.topics import (
    CreateOutcome,
    DeleteOutcome,
    MorePartitions,
    NewTopic,
    PartitionsOutcome,
    TopicReference,
    decide_create,
    decide_create_partitions,
    decide_delete,
)
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import BrokerInfo, BrokerRegistered, ControllerElected, Record
from moldau.runtime.ports import Random
from moldau.store.port import Conflict, Store

log = logging.getLogger(__name__)

#: Called after records are durable and applied. Where it returns an awaitable, the change is answered after
#: that.
OnChange = Callable[[Sequence[Record]], Awaitable[None] | None]

OutcomeT = TypeVar("OutcomeT", CreateOutcome, DeleteOutcome, PartitionsOutcome, AlterOutcome)


class HasConfig(Protocol):
    @property
    def config(self) -> BrokerConfig: ...


class Controller:
    def __init__(
        self, store: Store, state: PersistentImage, random: Random, broker: HasConfig, on_change: OnChange
    ):
        self._state = state
        self._random = random
        self._broker = broker
        self._on_change = on_change
        self._one_change = asyncio.Lock()
        self._producer_ids = ProducerIds(store)

    @property
    def image(self) -> ClusterImage:
        return self._state.image

    async def register(self, broker: BrokerInfo) -> None:
        """This broker is there, and leads the cluster."""
        async with self._one_change:
            elected = ControllerElected(broker.id, self.image.controller_epoch + 1)
            records: list[Record] = [BrokerRegistered(broker), elected]
            await self._state.write(records)
            await self._tell(records)

    async def begin_epochs(self, places: Sequence[TopicPartition]) -> None:
        """The leaders of these partitions go on as new ones, because their last life may have lost something."""
        async with self._one_change:
            if records := decide_new_epochs(self.image, places):
                await self._state.write(records)
                await self._tell(records)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreateOutcome]:
        def decide() -> list[CreateOutcome]:
            return decide_create(self.image, self._broker.config, topics, lambda: new_uuid(self._random))

        return await self._change(decide, validate_only)

    async def delete_topics(self, topics: Sequence[TopicReference]) -> list[DeleteOutcome]:
        enabled = self._broker.config["delete.topic.enable"]
        return await self._change(
            lambda: decide_delete(self.image, topics, deletion_enabled=enabled), validate_only=False
        )

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[PartitionsOutcome]:
        return await self._change(lambda: decide_create_partitions(self.image, topics), validate_only)

    async def alter_configs(
        self, resources: Sequence[Alterations], *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        return await self._change(
            lambda: decide_alter(self.image, self._broker.config, resources), validate_only
        )

    async def next_producer_id(self) -> int:
        """KafkaError where none can be had now; as Kafka's, one that every client tries again after."""
        try:
            return await self._producer_ids.next()
        except OSError as error:
            log.error("no producer id: %s", error)
            raise KafkaError(ErrorCode.coordinator_load_in_progress, str(error)) from error

    async def _change(self, decide: Callable[[], list[OutcomeT]], validate_only: bool) -> list[OutcomeT]:
        async with self._one_change:
            outcomes = decide()
            records = [outcome.record for outcome in outcomes if outcome.record is not None]
            if validate_only or not records:
                return outcomes
            try:
                await self._state.write(records)
            except (Conflict, OSError) as error:
                return [_failed(outcome, error) for outcome in outcomes]
            await self._tell(records)
            return outcomes

    async def _tell(self, records: Sequence[Record]) -> None:
        waiting = self._on_change(records)
        if waiting is not None:
            await waiting


def _failed(outcome: OutcomeT, error: Conflict | OSError) -> OutcomeT:
    if outcome.record is None:
        return outcome
    log.error("a change of the cluster failed: %s", error)
    code = ErrorCode.not_controller if isinstance(error, Conflict) else ErrorCode.kafka_storage_error
    return outcome._replace(error=code, message=str(error), record=None)
