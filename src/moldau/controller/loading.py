"""The cluster's image out of the store: what the entries say, what nobody refers to, and what has the old layout.

Reading is not atomic, so only its sole writer may act on it: a controller loads after it has claimed the store. Who
loads without that (a tool, a test) gets an image to look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

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

READS_AT_ONCE = 64
"""How many topics are read at a time: an ensemble is a round trip away."""


class Loaded(NamedTuple):
    image: ClusterImage
    garbage: tuple[str, ...]
    """Entries to remove, what lies deeper first."""
    converted: tuple[TopicCreated, ...]
    """Topics of the old layout, to be written in the new one."""


async def load_image(store: Store) -> ClusterImage:
    """The image that the store has, at the position that it says."""
    loaded = await load(store)
    entry = await store.get(layout.STATE)
    if entry is not None:
        loaded.image.position = layout.state_of(entry.value).position
    return loaded.image


async def load(store: Store) -> Loaded:
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
    return await _load_topics(store, image)


async def _load_topics(store: Store, image: ClusterImage) -> Loaded:
    configs = {entry.name: entry for entry in await store.children(layout.CONFIGS[ResourceType.TOPIC])}
    topics = await store.children(layout.TOPICS)
    folders = {entry.path: None for entry in await store.children(layout.PARTITIONS)}
    garbage: list[str] = []
    converted: list[TopicCreated] = []
    for start in range(0, len(topics), READS_AT_ONCE):
        some = topics[start : start + READS_AT_ONCE]
        paths = [layout.partitions_path(layout.topic_of(entry.value).topic_id) for entry in some]
        read = await asyncio.gather(*map(store.children, paths))
        for entry, path, entries in zip(some, paths, read, strict=True):
            own = configs.pop(entry.name, None)
            settings = {} if own is None else layout.configs_of(own.value)
            topic_id, count = layout.topic_of(entry.value)
            old = layout.old_states(entry.value)
            if old is None:
                folders.pop(path, None)
                states, strays = _states(entry, count, entries)
                garbage += strays
            else:
                states = old
                converted.append(TopicCreated(entry.name, topic_id, states, settings))
            image.apply(TopicCreated(entry.name, topic_id, states, settings))
    garbage += await _orphans(store, folders)
    garbage += [entry.path for entry in configs.values()]
    return Loaded(image, tuple(garbage), tuple(converted))


def _states(
    topic: Entry, count: int, entries: Iterable[Entry]
) -> tuple[tuple[PartitionState, ...], list[str]]:
    """A topic's partitions, and the entries that were prepared for it and never became part of it."""
    found: dict[int, PartitionState] = {}
    strays = []
    for entry in entries:
        index = int(entry.name)
        if index < count:
            found[index] = layout.partition_of(entry.value)
        else:
            strays.append(entry.path)
    invariant(len(found) == count, f"{topic.path} has {count} partitions, and the store only {len(found)}")
    return tuple(found[index] for index in range(count)), strays


async def _orphans(store: Store, folders: Mapping[str, None]) -> list[str]:
    """What is left of topics that are not there, and of conversions that were interrupted."""
    paths = []
    for folder in folders:
        paths += [entry.path for entry in await store.children(folder)]
        paths.append(folder)
    return paths
