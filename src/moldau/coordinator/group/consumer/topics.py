"""The cluster's topics as consumer groups see them: a port, which the cluster image satisfies as it is.

What takes long is decided in a thread, while the loop goes on to change the image: a topic is looked up once, and names
are copied before they are gone through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Protocol
from uuid import UUID

HASH_BYTES = 8


class SeenTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sequence[Any]: ...


class Topics(Protocol):
    @property
    def topics(self) -> Mapping[str, SeenTopic]: ...

    @property
    def topic_by_id(self) -> Mapping[UUID, SeenTopic]: ...

    @property
    def version(self) -> int: ...


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """A number that is another one when what is to be assigned changes. 0 while there is nothing.

    Kafka's records have room for such a number and do not say how it is made; it is compared with itself only.
    """
    found = [topic for topic in map(topics.topics.get, names) if topic is not None]
    found.sort(key=attrgetter("name"))
    if not found:
        return 0
    digest = blake2b(digest_size=HASH_BYTES)
    for topic in found:
        digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
