"""The change-data pipeline as its page says, and over topics that are compacted in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.server import Server
from cluster.support import wait_until
from spark.example_page import ExamplePage

DEADLINE_S = 120.0
RECORDS = 2500
PLAINLY = (
    r"\[AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE\] Cannot start AutoCDC flow: the target table .*"
    r" does not support row-level operations"
)
"""What Spark's own runner says of a project that it cannot run."""


@pytest.mark.timeout(1200)
def test_what_its_page_shows_is_so(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("change_data", tmp_path, server.bootstrap_servers)
        assert page.run_block(0) == page.printed(0)
        page.run_block(1)
        with pytest.raises(AssertionError, match=PLAINLY):
            page.run("spark-pipelines run --spec of-spark.yml")


@pytest.mark.timeout(1200)
def test_over_compacted_topics_the_tables_are_the_same(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server(log_cleaner_backoff_ms=200) as server:
        page = ExamplePage("change_data", tmp_path, server.bootstrap_servers)
        compacted = "--set cleanup.policy=compact --set segment.ms=1000 --set min.cleanable.dirty.ratio=0.01"
        page.run(f"moldau topic create customers products --partitions 1 {compacted}")
        page.run(f"python generate.py --changes {RECORDS}")
        page.run("moldau pipeline run --once")
        page.run(f"python generate.py --changes {RECORDS} --skip {RECORDS}")
        wait_until(lambda: has_gaps(server, "customers") and has_gaps(server, "products"), DEADLINE_S)
        page.run("moldau pipeline run --once")
        checked = page.run("python check.py")
        assert checked.count("as expected") == checked.count("\n") == 4, checked
        shutil.rmtree(page.folder / "storage")
        page.run("moldau pipeline run --once")
        assert page.run("python check.py") == checked, "one that begins with what compaction has left"


def has_gaps(server: Server, topic: str) -> bool:
    """Whether compaction has taken records away, in a topic of one partition."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "gaps", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = 0
    while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
        records += 1
    consumer.close()
    assert message is not None, "no answer"
    return records < message.offset()
