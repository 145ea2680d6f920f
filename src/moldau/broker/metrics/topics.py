"""What /metrics has by topic: traffic, ends, sizes. Topics beyond METRIC_TOPICS_MAX are one, `other`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from moldau.broker.metrics.text import Sample, Samples, labelled, plain
from moldau.replication.partition import Partition
from moldau.replication.traffic import TopicTraffic

PARTITIONS_PER_PAUSE = 64
"""Each may have to look at its files."""


def topic_samples(traffic: TopicTraffic, partitions: Iterable[Partition]) -> Samples:
    total = traffic.total()
    yield plain("moldau_produced_batches_total", total.batches_in)
    yield plain("moldau_produced_bytes_total", total.bytes_in)
    yield plain("moldau_produced_messages_total", total.messages_in)
    told = [(labelled(topic=name), of_topic) for name, of_topic in traffic.labelled()]
    for name, attribute in (
        ("moldau_topic_received_bytes_total", "bytes_in"),
        ("moldau_topic_received_messages_total", "messages_in"),
        ("moldau_topic_sent_bytes_total", "bytes_out"),
        ("moldau_topic_sent_messages_total", "messages_out"),
    ):
        yield Sample(name, tuple((labels, getattr(of_topic, attribute)) for labels, of_topic in told))
    yield from _log_samples(traffic, partitions)


def _log_samples(traffic: TopicTraffic, partitions: Iterable[Partition]) -> Samples:
    ends: dict[str, int] = defaultdict(int)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for number, partition in enumerate(partitions, 1):
        if number % PARTITIONS_PER_PAUSE == 0:
            yield None
        if partition.is_offline:
            continue
        topic = traffic.label(partition.topic_partition.topic)
        if partition.leader is not None:
            ends[topic] += partition.high_watermark
        with suppress(OSError):  # deleted meanwhile
            sizes[topic, partition.log.folder.rpartition("/")[0]] += partition.log.size_bytes()
    yield Sample("moldau_topic_end_offsets", tuple((labelled(topic=name), end) for name, end in ends.items()))
    yield Sample(
        "moldau_log_size_bytes",
        tuple((labelled(topic=name, folder=folder), size) for (name, folder), size in sizes.items()),
    )
