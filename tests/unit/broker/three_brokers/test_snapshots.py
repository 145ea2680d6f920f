"""An image of the cluster that is taken over whole: what has happened in between is acted on at once. R6."""

from __future__ import annotations

from uuid import UUID

from moldau.base.internal_topics import CONSUMER_OFFSETS
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
