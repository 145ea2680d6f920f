"""The audit as a whole: producers, topics and the lake, with losses and doublings on purpose, named by window."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.server import MoldauServer
from moldau.audit import AuditedProducer
from moldau.audit.tally import window_of
from moldau.spark.audit.project import write_audit
from moldau.spark.audit.reading import milliseconds, table_rows
from moldau.spark.pipeline.project import Project, load_project
from spark.pipelines import run_once
from spark.source_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_MS = 60_000
BEGIN_MS = window_of(int(time.time() * 1000) - 7_200_000, MINUTE_MS)
MOLDAU = (sys.executable, "-c", "from moldau.cli import main; main()")
NEVER_S = 3600.0
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def topics(requires_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with MoldauServer(tmp_path_factory.mktemp("broker")) as server:
        yield Topics(server.bootstrap_servers)


@pytest.fixture(autouse=True)
def no_settings_of_another_test(spark: SparkSession) -> Iterator[None]:
    yield
    for key in spark.conf.getAll:
        if key.startswith("moldau.audit."):
            spark.conf.unset(key)


def produce(topics: Topics, topic: str, minute: int, partition: int, numbers: Sequence[int]) -> None:
    """By the helper, one life of a producer."""
    with AuditedProducer(
        {"bootstrap.servers": topics.bootstrap_servers}, name="shop", interval_s=NEVER_S
    ) as producer:
        for number in numbers:
            producer.produce(
                topic,
                b"%d" % number,
                partition=partition,
                timestamp=BEGIN_MS + minute * MINUTE_MS + number,
            )


def produce_again(topics: Topics, topic: str, minute: int, partition: int, numbers: Sequence[int]) -> None:
    """The same records once more, without the helper: as a client that sends again what it took for lost."""
    for number in numbers:
        at_ms = BEGIN_MS + minute * MINUTE_MS + number
        topics.fill(topic, [number], partition, timestamp_ms=at_ms)


def audit_project(spark: SparkSession, folder: Path, topics: Topics, **tables: Path | None) -> Project:
    kept = {topic: [str(path)] for topic, path in tables.items() if path is not None}
    write_audit(folder, list(tables), kept, topics.bootstrap_servers)
    project = load_project(folder)
    for key, value in project.configuration.items():  # a run does so when it makes its session
        spark.conf.set(key, value)
    return project


def counted(spark: SparkSession, project: Project) -> None:
    runner, watching = run_once(spark, project)
    assert runner.all_went_well, "\n".join(watching.events)


def moldau_audit(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*MOLDAU, "audit", str(project.folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def windows_of(shown: subprocess.CompletedProcess[str]) -> dict[int, dict[str, Any]]:
    assert shown.stdout, shown.stderr
    windows = json.loads(shown.stdout)["windows"]
    return {(window["begin_ms"] - BEGIN_MS) // MINUTE_MS: window for window in windows}


def topic_rows(spark: SparkSession, topics: Topics, topic: str) -> DataFrame:
    return (
        spark.read.format("moldau")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topic)
        .load()
        .selectExpr("partition", "offset", "timestamp", "cast(value as string) as text")
    )


def keep(rows: DataFrame, lake: Path) -> None:
    rows.coalesce(1).write.format("moldau_lake").mode("append").save(str(lake))


def test_what_is_lost_and_doubled_on_purpose_is_named_by_window(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, lake = "orders", tmp_path / "lake"
    topics.create(topic, 3)
    for partition in range(3):
        produce(topics, topic, 0, partition, range(partition * 100, partition * 100 + 20))
    keep(topic_rows(spark, topics, topic), lake)
    project = audit_project(spark, tmp_path / "watch", topics, orders=lake)
    counted(spark, project)
    shown = moldau_audit(project, "--json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    (first,) = windows_of(shown).values()
    assert (first["verdict"], first["produced"], first["in_topic"], first["in_lake"]) == ("right", 60, 60, 60)

    produce(topics, topic, 1, 0, range(200, 230))
    topics.trim(topic, 0, 25)  # five of the second minute are gone before anybody has read them
    produce(topics, topic, 2, 1, range(300, 320))
    produce_again(topics, topic, 2, 1, [300, 301, 302])
    produce(topics, topic, 3, 0, range(400, 410))
    produce_again(topics, topic, 3, 0, [401])  # one lost and one doubled: the counts agree
    produce(topics, topic, 3, 2, [450])
    topics.trim(topic, 2, 21)
    produce(topics, topic, 4, 0, range(500, 510))
    produce(topics, topic, 4, 1, range(550, 560))
    produce(topics, topic, 5, 0, range(600, 610))
    produce(topics, topic, 5, 1, range(650, 660))
    produce(topics, topic, 6, 0, range(700, 710))
    produce(topics, topic, 6, 1, range(750, 760))
    rows = topic_rows(spark, topics, topic)
    minute = f"(unix_millis(timestamp) - {BEGIN_MS}) div {MINUTE_MS}"
    keep(rows.where(f"{minute} > 0 AND text NOT IN ('503', '605', '606')"), lake)
    keep(rows.where("text IN ('655', '656', '753')"), lake)
    counted(spark, project)

    shown = moldau_audit(project, "--json")
    assert shown.returncode == 1, shown.stdout + shown.stderr
    found = windows_of(shown)
    assert {minute: window["verdict"] for minute, window in found.items()} == {
        0: "right", 1: "wrong", 2: "wrong", 3: "wrong", 4: "wrong", 5: "wrong", 6: "wrong"
    }  # fmt: skip
    assert lost_and_doubled(found[1]) == (5, 0, 0, 0)
    assert lost_and_doubled(found[2]) == (0, 3, 0, 0)
    assert (found[3]["produced"], found[3]["in_topic"]) == (11, 11)
    assert lost_and_doubled(found[3]) == (1, 1, 0, 0)
    assert lost_and_doubled(found[4]) == (0, 0, 1, 0)
    assert lost_and_doubled(found[5]) == (0, 0, 2, 2)
    assert lost_and_doubled(found[6]) == (0, 0, 0, 1)
    assert_the_view_says_the_same(project, found)
    assert_people_see_it(project)


def lost_and_doubled(window: dict[str, Any]) -> tuple[int, int, int, int]:
    return (
        window["lost_in_topic"],
        window["doubled_in_topic"],
        window["lost_in_lake"],
        window["doubled_in_lake"],
    )


def assert_the_view_says_the_same(project: Project, found: dict[int, dict[str, Any]]) -> None:
    rows = table_rows(str(project.local_storage), "audit_windows")
    assert {
        (milliseconds(row["begin"]) - BEGIN_MS) // MINUTE_MS: (row["verdict"], row["lost"], row["doubled"])
        for row in rows
    } == {minute: (window["verdict"], window["lost"], window["doubled"]) for minute, window in found.items()}


def assert_people_see_it(project: Project) -> None:
    shown = moldau_audit(project, "--problems")
    assert shown.returncode == 1
    lines = shown.stdout.splitlines()
    assert lines[0].split() == [
        *("TOPIC", "WINDOW", "PRODUCED", "IN", "TOPIC", "IN", "LAKE"),
        *("LOST", "DOUBLED", "STATE", "NOTES"),
    ]
    assert lines[1].endswith("lost 5 in the topic")
    assert "closed, wrong" in lines[1]
    assert lines[-1] == "6 windows: 6 wrong."
    assert moldau_audit(project, "--since", f"@{BEGIN_MS + 7 * MINUTE_MS}").returncode == 0
    unknown = moldau_audit(project, "--topic", "order")
    assert (unknown.returncode, unknown.stdout) == (4, "")


def test_a_pipeline_that_is_behind_is_no_loss_and_topics_without_the_helper_are_compared_with_the_lake(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    topics.create("plain", 1)
    topics.create("helped", 1)
    topics.fill("plain", range(10), timestamp_ms=BEGIN_MS)
    produce(topics, "helped", 0, 0, range(10))
    keep(topic_rows(spark, topics, "plain").where("text <> '4'"), lake)
    project = audit_project(spark, tmp_path / "watch", topics, plain=lake, helped=None)
    counted(spark, project)
    produce(topics, "helped", 0, 0, range(20, 30))
    produce(topics, "helped", 1, 0, range(20, 30))

    shown = moldau_audit(project, "--json")
    assert shown.returncode == 1, shown.stdout + shown.stderr
    document = json.loads(shown.stdout)
    plain, *helped = sorted(document["windows"], key=lambda window: str(window["topic"]), reverse=True)
    assert (plain["produced"], plain["in_topic"], plain["in_lake"]) == (None, 10, 9)
    assert (plain["verdict"], plain["lost_in_lake"]) == ("wrong", 1)
    assert [(window["produced"], window["in_topic"], window["state"]) for window in helped] == [
        (10, 10, "open")
    ]
    assert document["behind"]["helped"] == 20
    counted(spark, project)
    shown = moldau_audit(project, "--topic", "helped", "--json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert [window["verdict"] for window in json.loads(shown.stdout)["windows"]] == ["right", "right"]
