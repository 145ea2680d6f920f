"""Decisions on who leads partitions, and in which epoch. Pure.

A leader epoch stands for one leader's uninterrupted writing (KIP-101). A broker that comes back from a crash may
have lost records that someone has read, and will give their offsets to others: were the epoch the same, a reader
could not tell (KIP-320) and would miss some. So the leader begins a new one, as Kafka's does after every restart;
after a clean stop nothing was lost, and the epoch goes on.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.base.ids import TopicPartition
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import PartitionsChanged, PartitionState


def decide_new_epochs(image: ClusterImage, places: Iterable[TopicPartition]) -> list[PartitionsChanged]:
    """The same leaders in new epochs, for the partitions that are named."""
    changed: dict[str, dict[int, PartitionState]] = {}
    for name, index in places:
        state = image.topics[name].partitions[index]
        changed.setdefault(name, {})[index] = state._replace(
            leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1
        )
    return [PartitionsChanged(name, image.topics[name].topic_id, states) for name, states in changed.items()]
