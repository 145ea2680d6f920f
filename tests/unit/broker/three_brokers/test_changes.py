"""What a broker does about changes of the cluster, one by one or many at once. R6."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.controller.topics import NewTopic
from moldau.metadata.difference import Difference
from moldau.metadata.image import image_from, snapshot_of
from moldau.metadata.records import Position, TopicCreated, TopicDeleted
from moldau.sim.world import World

from .trio import Trio


def test_an_internal_topic_that_was_made_anew_has_its_coordinator() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(1)
        await trio.create((1,), (1,), topic=CONSUMER_OFFSETS)
        broker = trio.brokers[1]
        assert broker.coordinators.groups.led == [0, 1]
        image = image_from(snapshot_of(broker.image))
        old = image.topics[CONSUMER_OFFSETS]
        image.apply(TopicDeleted(CONSUMER_OFFSETS, old.topic_id))
        image.apply(TopicCreated(CONSUMER_OFFSETS, UUID(int=5), old.partitions[:1], {}))
        image.position = Position(image.position.epoch, image.position.sequence + 2)
        await broker.tasks.spawn(broker.feed._take_over(image), name="take over")
        assert broker.coordinators.groups.led == [0]
        await trio.until(lambda: not broker.coordinators.groups.is_loading, "loaded")

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_a_broker_that_cannot_act_on_a_change_ends_rather_than_serve_another_cluster(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_changes: Difference) -> None:
        raise error("a bug")

    async def scene(trio: Trio) -> None:
        await trio.start(1)
        await trio.start(2)
        failing = trio.brokers[2]
        monkeypatch.setattr(failing.replicas, "act_on", fail)
        controller = trio.brokers[1]
        work = controller.controller.create_topics([NewTopic("new", 1, 1)])
        await controller.tasks.spawn(work, name="create")
        await trio.until(lambda: failing.failure is not None, "it ends")
        assert isinstance(failing.failure, error)
        assert trio.brokers[1].failure is None

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_broker_that_does_not_come_to_an_end_with_a_change_is_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(_changes: Difference) -> None:
        await asyncio.get_running_loop().create_future()

    async def scene(trio: Trio) -> None:
        await trio.start(1)
        await trio.start(2)
        monkeypatch.setattr("moldau.broker.feed.BUSY_S_MAX", 20.0)
        controller, hung = trio.brokers[1], trio.brokers[2]
        monkeypatch.setattr(hung.replicas, "act_on", hang)
        work = controller.controller.create_topics([NewTopic("new", 1, 1)])
        await controller.tasks.spawn(work, name="create")
        await trio.world.sleep(15.0)
        assert 2 in controller.image.brokers, "it says that it is at work"
        await trio.until(lambda: 2 not in controller.image.brokers, "it is fenced")

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
