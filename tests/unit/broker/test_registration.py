"""How a broker comes into its cluster. R6, KIP-903."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.registration import Refused, Registrar
from moldau.controller.brokers import Registration
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import BrokerInfo, BrokerRegistered
from moldau.runtime.real import close_runtime, real_runtime


class Channel:
    """To a controller that refuses some registrations, then takes one."""

    def __init__(self, *refusals: ErrorCode) -> None:
        self._refusals = list(refusals)
        self.image = ClusterImage("c")

    async def register(self, wanted: Registration) -> int:
        if self._refusals:
            raise KafkaError(self._refusals.pop(0))
        self.image.apply(
            BrokerRegistered(BrokerInfo(wanted.id, wanted.listeners, None, 7, wanted.incarnation))
        )
        return 7


async def until(_condition: object) -> None:
    return None


def registered(channel: Channel) -> int:
    """The broker's epoch, at the end of its registration."""

    async def play() -> int:
        membership: Any = SimpleNamespace(incarnation=uuid.UUID(int=1), session=uuid.UUID(int=2))
        feed: Any = SimpleNamespace(until=until)
        runtime = real_runtime()
        made = Registrar(runtime.tasks, 1, channel.image, channel, feed, membership, "boot")  # type: ignore[arg-type]
        try:
            await made.begin({}, None, (), previous_epoch=-1, lost=())
        finally:
            close_runtime(runtime)
        return made.epoch

    return asyncio.run(play())


def test_a_controller_that_still_sees_the_session_of_its_last_life_is_asked_again() -> None:
    twice = [ErrorCode.duplicate_broker_registration] * 2
    assert registered(Channel(*twice)) == 7


def test_whom_the_controller_does_not_want_ends() -> None:
    with pytest.raises(Refused):
        registered(Channel(ErrorCode.inconsistent_cluster_id))


@pytest.mark.parametrize(
    ("error", "asked"),
    [(ErrorCode.kafka_storage_error, 3), (ErrorCode.request_timed_out, 1), (ErrorCode.stale_broker_epoch, 1)],
)
def test_a_broker_asks_again_to_go_where_only_the_store_had_failed(error: ErrorCode, asked: int) -> None:
    class Going(Channel):
        asked = 0

        async def heartbeat(self, _epoch: int, *, wants_shut_down: bool) -> tuple[bool, bool]:
            assert wants_shut_down
            self.asked += 1
            if self.asked < 3:
                raise KafkaError(error)
            return True, True

    async def play() -> int:
        channel, incarnation = Going(), uuid.UUID(int=1)
        for broker_id in (1, 2):
            channel.image.apply(BrokerRegistered(BrokerInfo(broker_id, {}, None, 7, incarnation)))
        membership: Any = SimpleNamespace(incarnation=incarnation)
        feed: Any = SimpleNamespace(until=until)
        runtime = real_runtime()
        made = Registrar(runtime.tasks, 1, channel.image, channel, feed, membership, "boot")  # type: ignore[arg-type]
        try:
            await made.shut_down(is_controlled=True)
        finally:
            close_runtime(runtime)
        return channel.asked

    assert asyncio.run(play()) == asked
