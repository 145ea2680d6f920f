"""What is advertised is one table, and it is Kafka's."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from moldau.broker import handlers
from moldau.broker.handlers import ROUTES
from moldau.broker.protocol_support import protocol_support
from moldau.wire.apis import APIS

PAGE = Path(__file__).parents[3] / "docs" / "protocol-support.md"

KAFKA_4_3 = {
    "Produce": (0, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "FindCoordinator": (0, 6),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "AlterReplicaLogDirs": (1, 2),
    "DescribeLogDirs": (1, 5),
    "CreatePartitions": (0, 3),
    "ElectLeaders": (0, 2),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "IncrementalAlterConfigs": (0, 1),
    "DescribeCluster": (0, 2),
    "DescribeProducers": (0, 0),
    "ListConfigResources": (0, 1),
    "DescribeTopicPartitions": (0, 0),
}
"""What an Apache Kafka 4.3.1 broker printed for kafka-broker-api-versions."""


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == protocol_support(ROUTES), "run `make docs`"


@pytest.mark.parametrize("name", sorted(KAFKA_4_3))
def test_an_api_is_advertised_in_every_version_that_kafka_serves(name: str) -> None:
    served = {route.name: (route.advertised_min_version, route.max_version) for route in ROUTES.values()}
    assert served[name] == KAFKA_4_3[name]


def test_nothing_is_advertised_that_has_no_codec() -> None:
    for key, route in ROUTES.items():
        if route.is_internal and key not in APIS:
            continue
        assert APIS[key].min_version <= route.min_version <= route.max_version <= APIS[key].max_version


HANDLERS = sorted(
    path.stem for path in Path(handlers.__file__).parent.glob("*.py") if path.stem != "__init__"
)


@pytest.mark.parametrize("name", HANDLERS)
def test_the_head_of_a_handler_begins_with_what_each_version_brings_a_line_each(name: str) -> None:
    handler = importlib.import_module(f"moldau.broker.handlers.{name}")
    _, versions, *_ = (handler.__doc__ or "").split("\n\n")
    found = re.findall(r"^- v(\d+): \S", versions, flags=re.MULTILINE)
    first, last = handler.VERSIONS
    assert [int(version) for version in found] == list(range(first, last + 1))
