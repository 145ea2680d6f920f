"""The topics in a consumer's subscription: the one part of a member's metadata that the coordinator looks into.

Members of type `consumer` send it in every protocol that they support (ConsumerProtocolSubscription); all its versions
begin with the list of topics. Kafka looks into it to keep offsets of topics that a group still reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.coordinator.fields import BadFields, FieldReader

CONSUMER = "consumer"


def subscribed_topics(metadatas: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None where one of them cannot be read."""
    topics: set[str] = set()
    try:
        for metadata in metadatas:
            fields = FieldReader(metadata)
            fields.int16()
            topics.update(fields.string() for _ in range(fields.array()))
    except BadFields:
        return None
    return frozenset(topics)
