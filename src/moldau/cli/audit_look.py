"""A look at an audit: how far its pipeline has come, then what it has counted by then, then the comparison.

A topic counts as covered until now where the pipeline's group stands at its end, and else until the time of the first
record that it has not counted. The order matters: what the group has committed is in the tables that are read after it.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from moldau.audit.comparison import Window, by_topic, compare
from moldau.cli.client import Connection
from moldau.cli.errors import CliError, Exit
from moldau.cli.group_view import committed_offsets
from moldau.cli.options import Target
from moldau.spark.audit.reading import read_evidence
from moldau.spark.audit.settings import AuditSettings
from moldau.spark.client_options import client_config, kafka_options

if TYPE_CHECKING:
    from confluent_kafka import Message

TIMEOUT_S = 30.0
Places = dict[tuple[str, int], int]
"""Offsets by topic and partition."""


class Look:
    def __init__(self, settings: AuditSettings, storage: str, topics: frozenset[str]) -> None:
        self._settings = settings
        self._storage = storage
        self._topics = topics
        config = client_config(kafka_options(settings.kafka), "admin")
        target = Target(config.pop("bootstrap.servers"), timeout_s=TIMEOUT_S)
        self._connection = Connection(dataclasses.replace(target, properties=config))
        self.behind: dict[str, int] = {}
        """By topic, how many records the pipeline had not counted at the last look, where it holds windows open."""

    def windows(self, since_ms: int) -> list[Window]:
        """Of the topics, from a time on."""
        now_ms = time.time_ns() // 1_000_000
        covered = self._covered(now_ms)
        evidence = read_evidence(self._storage, since_ms)
        found = compare(evidence, self._settings.rules, now_ms, by_topic(covered))
        return [window for window in found if window.topic in self._topics]

    def _covered(self, now_ms: int) -> dict[str, int]:
        """Until when each topic is counted, and the producers' messages with it."""
        known = self._connection.metadata().topics
        wanted = [*self._settings.topics, self._settings.audit_topic]
        committed = committed_offsets(self._connection, self._settings.group)
        places = {
            (topic, partition): committed.get((topic, partition), (0, ""))[0]
            for topic in wanted
            if topic in known
            for partition in known[topic].partitions
        }
        firsts = self._first_uncounted(places)
        late = [
            topic for topic, time_ms in firsts.items() if time_ms + self._settings.rules.lateness_ms < now_ms
        ]
        left = self._left(places)
        self.behind = {topic: left[topic] for topic in wanted if topic in late}
        until = {topic: firsts.get(topic, now_ms) for topic in wanted if topic in known}
        published = until.get(self._settings.audit_topic, now_ms)
        return {topic: min(until[topic], published) for topic in self._settings.topics if topic in until}

    def _first_uncounted(self, places: Places) -> dict[str, int]:
        """By topic, the time of the first record from the offsets on; topics without one are left out."""
        from confluent_kafka import TopicPartition

        if not places:
            return {}
        consumer = self._connection.consumer(auto_offset_reset="earliest")
        found: dict[str, int] = {}
        open_places = set(places)
        try:
            consumer.assign([TopicPartition(*place, offset) for place, offset in places.items()])
            deadline = time.monotonic() + TIMEOUT_S
            while open_places:
                message = consumer.poll(max(0.0, deadline - time.monotonic()))
                if message is None:
                    raise self._connection.silent()
                place = message.topic() or "", message.partition() or 0
                if place in open_places and not self._is_end(message):
                    _, time_ms = message.timestamp()
                    found[place[0]] = min(time_ms, found.get(place[0], time_ms))
                open_places.discard(place)
        finally:
            consumer.close()
        return found

    def _is_end(self, message: Message) -> bool:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        raise CliError(f"{message.topic()}: {error.str()}.", code=Exit.FAILED)

    def _left(self, places: Places) -> dict[str, int]:
        from moldau.cli.group_view import next_offsets

        ends = next_offsets(self._connection, {topic for topic, _ in places})
        left: dict[str, int] = {}
        for place, offset in places.items():
            left[place[0]] = left.get(place[0], 0) + max(0, ends.get(place, offset) - offset)
        return left
