"""The topics that a project's flows read and write: whether they exist, and what an earlier position in them is.

Asked only by a check and a replay: a run waits for a topic that is not there yet, as a failed flow waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from moldau.spark.client_options import client_config, kafka_options
from moldau.spark.pipeline.declared import Kind, Mistake, Place
from moldau.spark.pipeline.graph import Built

FORMATS = frozenset({"moldau", "kafka"})
PATIENCE_S = 10.0
SERVERS = "kafka.bootstrap.servers"


def named_topics(options: Mapping[str, str]) -> list[str]:
    """The topics that a reader's or a writer's options name; a pattern names none."""
    import json

    given = {key.lower(): value for key, value in options.items()}
    if "subscribe" in given:
        return [topic.strip() for topic in given["subscribe"].split(",") if topic.strip()]
    if "assign" in given:
        try:
            return list(json.loads(given["assign"]))
        except ValueError:
            return []
    return [given["topic"]] if "topic" in given else []


def topic_mistakes(built: Sequence[Built]) -> Iterator[Mistake]:
    """Topics that do not exist, and clusters that do not answer."""
    cluster = Clusters()
    for place, options in uses(built):
        try:
            known = cluster.topics(options)
        except Unreachable as reason:
            yield Mistake(place, str(reason))
            continue
        for topic in named_topics(options):
            if topic not in known:
                yield Mistake(
                    place, f"there is no topic '{topic}'.", f"`moldau topic create {topic}` makes it."
                )


def uses(built: Sequence[Built]) -> Iterator[tuple[Place, Mapping[str, str]]]:
    seen = set()
    for one in built:
        for source in one.sources:
            if source.format in FORMATS:
                yield one.flow.place, source.options
        output = one.output
        if output.kind is Kind.SINK and output.format in FORMATS and output.name not in seen:
            seen.add(output.name)
            yield output.place, output.options


class Unreachable(Exception):
    """A cluster that does not answer, in a sentence."""


class Clusters:
    """The clusters that a project's options name; each is asked once."""

    def __init__(self) -> None:
        self._topics: dict[tuple[tuple[str, str], ...], dict[str, list[int]] | Unreachable] = {}

    def topics(self, options: Mapping[str, str]) -> dict[str, list[int]]:
        """Topics and their partitions."""
        kafka = kafka_options(options)
        key = tuple(sorted(kafka.items()))
        if key not in self._topics:
            self._topics[key] = ask(kafka)
        known = self._topics[key]
        if isinstance(known, Unreachable):
            raise known
        return known


def ask(kafka: Mapping[str, str]) -> dict[str, list[int]] | Unreachable:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    servers = kafka.get("bootstrap.servers", "")
    try:
        quiet = {"log_level": 0, "error_cb": lambda _error: None}
        metadata = AdminClient({**client_config(kafka, "admin"), **quiet}).list_topics(timeout=PATIENCE_S)
    except KafkaException as error:
        return Unreachable(f"the cluster at {servers} does not answer: {error.args[0].str()}.")
    except ValueError as error:
        return Unreachable(str(error))
    return {name: sorted(topic.partitions) for name, topic in metadata.topics.items()}


Positions = Callable[[Mapping[str, str], str, list[int]], dict[int, int]]
"""The wanted offset of each of a topic's partitions, by a reader's options."""


def starting_options(options: Mapping[str, str], into: str, positions: Positions) -> dict[str, str]:
    """What a reader of topics is given to begin elsewhere, and to leave the progress of the other one alone."""
    import json

    given = {key.lower(): value for key, value in options.items()}
    known = Clusters().topics(options)
    topics = named_topics(options) or [
        name for name in known if re.fullmatch(given.get("subscribepattern", ""), name)
    ]
    offsets: dict[str, Any] = {
        topic: {
            str(partition): offset for partition, offset in positions(options, topic, known[topic]).items()
        }
        for topic in topics
        if topic in known
    }
    more = {"startingOffsets": json.dumps(offsets)}
    if "progressgroup" in given:
        more["progressGroup"] = f"{given['progressgroup']}-{into}"
    return more
