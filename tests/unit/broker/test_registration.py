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
