"""The cluster's image out of the store: what the entries say, what nobody refers to, and what has the old layout.

Reading is not atomic, so only its sole writer may act on it: a controller loads after it has claimed the store. Who
loads without that (a tool, a test) gets an image to look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from moldau.base.invariant import invariant
from moldau.controller import layout
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    BrokerRegistered,
    ConfigChanged,
    PartitionState,
    ProducerIdsAllocated,
    ResourceType,
    TopicCreated,
)
from moldau.store.port import Entry, Store

Pause = Callable[[float], Awaitable[None]]


class Loaded(NamedTuple):
    image: ClusterImage
    garbage: tuple[str, ...]
    """Entries to remove."""
    converted: tuple[TopicCreated, ...]
    """Topics of the old layout, to be written in the new one."""


async def load_image(store: Store) -> ClusterImage:
    """The image that the store has, at the position that it says."""
    loaded = await load(store)
    entry = await store.get(layout.STATE)
    if entry is not None:
        loaded.image.position = layout.state_of(entry.value).position
    return loaded.image


async def no_pause(_seconds: float) -> None:
    pass


async def load(store: Store, pause: Pause = no_pause) -> Loaded:
    """`pause` lets others run, between one topic and the next."""
    cluster_id = await store.get(layout.CLUSTER_ID)
    image = ClusterImage("" if cluster_id is None else cluster_id.value.decode())
    if (producer_ids := await store.get(layout.PRODUCER_IDS)) is not None:
        image.apply(ProducerIdsAllocated(int(producer_ids.value)))
    for entry in await store.children(layout.BROKERS):
        image.apply(BrokerRegistered(layout.broker_of(entry.value)))
    for type_, folder in layout.CONFIGS.items():
        if type_ is not ResourceType.TOPIC:
            for entry in await store.children(folder):
                resource = layout.resource_of(type_, entry.name)
                image.apply(ConfigChanged(resource, layout.configs_of(entry.value)))
    return await _load_topics(store, image, pause)


async def _load_topics(store: Store, image: ClusterImage, pause: Pause) -> Loaded:
    configs = {entry.name: entry for entry in await store.children(layout.CONFIGS[ResourceType.TOPIC])}
    topics = await store.children(layout.TOPICS)
    partitions = await _read_partitions(store, pause)
    garbage: list[str] = []
    converted: list[TopicCreated] = []
    for entry in topics:
        await pause(0)
        own = configs.pop(entry.name, None)
        settings = {} if own is None else layout.configs_of(own.value)
        topic_id, count = layout.topic_of(entry.value)
        states = layout.old_states(entry.value)
        if states is None:
            states = _states(entry, count, partitions.get(topic_id, {}))
        else:
            converted.append(TopicCreated(entry.name, topic_id, states, settings))
        image.apply(TopicCreated(entry.name, topic_id, states, settings))
    # What is left of topics that are not there, and of additions and conversions that were interrupted.
    garbage += [stray.path for strays in partitions.values() for stray in strays.values()]
    garbage += [entry.path for entry in configs.values()]
    return Loaded(image, tuple(garbage), tuple(converted))


async def _read_partitions(store: Store, pause: Pause) -> dict[UUID, dict[int, Entry]]:
    """All entries of partitions, by topic and number."""
    found: dict[UUID, dict[int, Entry]] = {}
    for entries in await asyncio.gather(*map(store.children, layout.PARTITION_FOLDERS)):
        await pause(0)
        for entry in entries:
            if (named := layout.partition_named(entry.path)) is not None:
                topic_id, index = named
                found.setdefault(topic_id, {})[index] = entry
    return found


def _states(topic: Entry, count: int, entries: dict[int, Entry]) -> tuple[PartitionState, ...]:
    """A topic's partitions, taken from the entries: what stays there was prepared, and never became part of it."""
    there = sum(index in entries for index in range(count))
    invariant(there == count, f"{topic.path} has {count} partitions, and the store has {there} of them")
    return tuple(layout.partition_of(entries.pop(index).value) for index in range(count))
