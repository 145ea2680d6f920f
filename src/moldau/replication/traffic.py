"""What clients append to topics and consumers get of them, counted by topic.

A bounded number of topics has figures of its own; the others share one. A topic keeps what it was given first until it
is gone from here, so that no count ever goes down.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.base.limits import METRIC_TOPICS_MAX

OTHER = "other"
"""The name under which the rest is told. A topic that has it is counted there."""


class Traffic:
    __slots__ = ("batches_in", "bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.batches_in = self.bytes_in = self.messages_in = self.bytes_out = self.messages_out = 0

    def add(self, more: Traffic) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(more, name))


class TopicTraffic:
    """Of all topics that this broker holds partitions of."""

    def __init__(self, named_max: int = METRIC_TOPICS_MAX) -> None:
        self._named_max = named_max
        self._of: dict[str, Traffic] = {}
        self._named: dict[str, Traffic] = {}
        self._others = Traffic()
        self._gone = Traffic()

    def of(self, topic: str) -> Traffic:
        found = self._of.get(topic)
        if found is None:
            found = self._others
            if len(self._named) < self._named_max and topic != OTHER:
                found = self._named[topic] = Traffic()
            self._of[topic] = found
        return found

    def forget(self, topic: str) -> None:
        """No partition of it is here any more. One of the same name begins anew."""
        self._of.pop(topic, None)
        named = self._named.pop(topic, None)
        if named is not None:
            self._gone.add(named)

    def label(self, topic: str) -> str:
        """The name under which a topic's figures are told."""
        return topic if topic in self._named else OTHER

    @property
    def has_others(self) -> bool:
        return len(self._of) > len(self._named)

    def labelled(self) -> Iterator[tuple[str, Traffic]]:
        yield from list(self._named.items())
        if self.has_others or self._others.batches_in or self._others.bytes_out:
            yield OTHER, self._others

    def total(self) -> Traffic:
        """Since the broker began; topics that are gone count."""
        total = Traffic()
        for traffic in (*self._named.values(), self._others, self._gone):
            total.add(traffic)
        return total
