"""What the demo shows: asked of the brokers, of the pipeline's note and of the lake, as any other program could.

Nothing here starts or changes anything. What is not there yet is left out. Histories are bounded: rates are counted
over ten seconds, and of the minutes the last sixty are kept.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.demo.parts import TOPICS

RATE_S = 10.0
MINUTES_MAX = 60
PAGES_SHOWN = 8
ANSWER_S = 5.0
MESSAGES_MAX = 5_000
"""Of the counted minutes, taken at a time."""


@dataclass
class Facts:
    """One look."""

    brokers: int = 0
    records: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    flows: list[dict[str, Any]] = field(default_factory=list)
    pages: list[tuple[str, int]] = field(default_factory=list)
    """The most viewed ones first."""
    kept: int = 0
    """Page views in the lake, each once."""
    minutes: list[tuple[datetime, int]] = field(default_factory=list)
    """Views of each minute that is counted, the last ones last."""
    sessions: int = 0
    views_in_sessions: int = 0
    seconds_in_sessions: float = 0.0

    @property
    def lag(self) -> int | None:
        known = [flow["lag"] for flow in self.flows if flow["lag"] is not None]
        return max(known) if known else None


class Rate:
    """How fast a number grows."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=100)

    def of(self, now_s: float, number: int) -> float:
        self._seen.append((now_s, number))
        while now_s - self._seen[0][0] > RATE_S:
            self._seen.popleft()
        then_s, before = self._seen[0]
        return (number - before) / (now_s - then_s) if now_s > then_s else 0.0


class Topics:
    """Sizes and contents of the topics, by a client that is kept."""

    def __init__(self, bootstrap_servers: str) -> None:
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
        }
        self._consumer = Consumer(settings)
        self._rates = {topic: Rate() for topic in TOPICS}
        self._minutes: dict[datetime, int] = {}
        self._counted = 0
        self._is_assigned = False

    def look(self, facts: Facts, now_s: float) -> None:
        from confluent_kafka import KafkaException

        try:
            self._look(facts, now_s)
        except KafkaException:
            pass  # the next look asks again

    def _look(self, facts: Facts, now_s: float) -> None:
        from confluent_kafka import TopicPartition

        cluster = self._consumer.list_topics(timeout=ANSWER_S)
        facts.brokers = len(cluster.brokers)
        views, counted = (
            [TopicPartition(topic, one) for one in cluster.topics[topic].partitions] for topic in TOPICS
        )
        ends = [self._consumer.get_watermark_offsets(one, ANSWER_S, cached=False)[1] for one in views]
        if not self._is_assigned:
            self._consumer.assign([TopicPartition(one.topic, one.partition, 0) for one in counted])
            self._is_assigned = True
        self._take_minutes()
        facts.minutes = sorted(self._minutes.items())
        # Transactions leave markers in the topic of the counts, so that its offsets are not its records.
        for topic, records in zip(TOPICS, (sum(ends), self._counted), strict=True):
            facts.records[topic] = records
            facts.rates[topic] = self._rates[topic].of(now_s, records)

    def _take_minutes(self) -> None:
        for message in self._consumer.consume(MESSAGES_MAX, 0.1):
            if message.error() is None:
                row = json.loads(message.value())
                minute = datetime.fromisoformat(row["minute"])
                self._minutes[minute] = self._minutes.get(minute, 0) + row["views"]
                self._counted += 1
        for minute in sorted(self._minutes)[:-MINUTES_MAX]:
            del self._minutes[minute]

    def close(self) -> None:
        self._consumer.close()


class Lake:
    """The pipeline's tables, of which only new files are read."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._tables: dict[str, Any] = {}
        self._seen: set[str] = set()
        self._sessions = 0
        self._views = 0
        self._seconds = 0.0

    def look(self, facts: Facts) -> None:
        rows = [row for uri in self._files("top_pages") for row in rows_of(uri)]
        pages = sorted(((row["page"], row["views"]) for row in rows), key=lambda page: (-page[1], page[0]))
        facts.pages = pages[:PAGES_SHOWN]
        facts.kept = sum(views for _, views in pages)
        files = set(self._files("sessions"))
        new, self._seen = files - self._seen, files
        for uri in sorted(new):
            for row in rows_of(uri):
                self._sessions += 1
                self._views += row["views"]
                self._seconds += (row["end"] - row["start"]).total_seconds()
        facts.sessions, facts.views_in_sessions = self._sessions, self._views
        facts.seconds_in_sessions = self._seconds

    def _files(self, name: str) -> list[str]:
        from deltalake import DeltaTable

        if not (self._storage / name / "_delta_log").is_dir():
            return []
        if name in self._tables:
            self._tables[name].update_incremental()
        else:
            self._tables[name] = DeltaTable(self._storage / name)
        return list(self._tables[name].file_uris())


def rows_of(uri: str) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet

    try:
        yield from pyarrow.parquet.ParquetFile(uri).read().to_pylist()
    except FileNotFoundError:
        return  # replaced meanwhile


class Asking:
    """All of it, look by look."""

    def __init__(self, bootstrap_servers: str, project: Path) -> None:
        from moldau.spark.pipeline.project import load_project
        from moldau.spark.pipeline.state import RunNote

        loaded = load_project(project)
        storage = loaded.local_storage
        assert storage is not None
        self._note = RunNote(loaded)
        self._topics = Topics(bootstrap_servers)
        self._lake = Lake(storage)

    def look(self, now_s: float) -> Facts:
        facts = Facts()
        self._topics.look(facts, now_s)
        note = self._note.read()
        if note is not None:
            facts.flows = note["flows"]
        self._lake.look(facts)
        return facts

    def close(self) -> None:
        self._topics.close()
