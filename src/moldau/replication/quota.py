"""How fast throttled replicas may be copied: a limit on the bytes of the last seconds (KIP-73). Pure.

The rate is what was recorded over the time since the oldest sample began, at least one sample; samples leave when the
window has passed them. A limit holds over the window, not at every moment: what is asked for while there is room comes
whole, and waits are as long as it takes to make up for it. Kafka's `ReplicationQuotaManager` and `SimpleRate`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import NamedTuple

EVERY_PARTITION = "*"
PARTITION_DIGITS_MAX = 10
"""A longer number is no partition's; Python makes no integers of very long ones."""


class QuotaWindow(NamedTuple):
    """`replication.quota.window.num` and `.size.seconds`."""

    samples: int = 11
    sample_s: float = 1.0

    @property
    def length_s(self) -> float:
        return self.samples * self.sample_s


class Sample:
    """What was copied since a moment."""

    __slots__ = ("bytes", "start_s")

    def __init__(self, start_s: float, bytes_: int) -> None:
        self.start_s = start_s
        self.bytes = bytes_


class ReplicationQuota:
    __slots__ = ("_samples", "_total_bytes", "_window", "limit")

    def __init__(self, window: QuotaWindow) -> None:
        self.limit: int | None = None
        """Bytes a second; None is no limit."""
        self._window = window
        self._samples: deque[Sample] = deque()
        self._total_bytes = 0

    def record(self, bytes_: int, now_s: float) -> None:
        self._forget_old(now_s)
        samples = self._samples
        if not samples or now_s - samples[-1].start_s >= self._window.sample_s:
            samples.append(Sample(now_s, 0))
        samples[-1].bytes += bytes_
        self._total_bytes += bytes_

    def rate(self, now_s: float, more_bytes: int = 0) -> float:
        """Bytes a second, with some that are about to be recorded."""
        self._forget_old(now_s)
        elapsed_s = now_s - self._samples[0].start_s if self._samples else 0.0
        return (self._total_bytes + more_bytes) / max(elapsed_s, self._window.sample_s)

    def is_exceeded(self, now_s: float, more_bytes: int = 0) -> bool:
        return self.limit is not None and self.rate(now_s, more_bytes) > self.limit

    def room_in_s(self, now_s: float) -> float:
        """How long it takes until there is room again, if nothing is copied meanwhile."""
        if not self.is_exceeded(now_s):
            return 0.0
        assert self.limit is not None
        left_bytes, from_s = self._total_bytes, now_s
        for sample in self._samples:
            until_s = sample.start_s + self._window.length_s
            if left_bytes <= self.limit * self._window.sample_s:
                break
            if left_bytes <= self.limit * self._window.length_s:
                from_s = max(from_s, sample.start_s + left_bytes / self.limit)
                break
            left_bytes -= sample.bytes
            from_s = until_s
        return from_s - now_s

    def _forget_old(self, now_s: float) -> None:
        samples = self._samples
        while samples and now_s - samples[0].start_s >= self._window.length_s:
            self._total_bytes -= samples.popleft().bytes


class _Every:
    def __contains__(self, _partition: object) -> bool:
        return True


EVERY: Container[int] = _Every()
NONE: Container[int] = frozenset()


def throttled_partitions(replicas: Iterable[str], node_id: int) -> Container[int]:
    """The partitions of a topic whose replica on this broker is named by `*.replication.throttled.replicas`: a list of
    partition:broker, or all (`TopicConfigHandler.parseThrottledPartitions`)."""
    if EVERY_PARTITION in replicas:
        return EVERY
    ours = str(node_id)
    named = (item.partition(":") for item in replicas)
    return frozenset(
        int(partition)
        for partition, _, broker in named
        if len(partition) <= PARTITION_DIGITS_MAX and (broker.lstrip("0") or "0") == ours
    )
