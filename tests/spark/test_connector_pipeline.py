"""A pipeline that names Spark's own connector, `format("kafka")`: what is said where its jars are missing, and that it
runs where they are given; in Real-Time Mode, too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.server import MoldauServer
from bench.spark_connector import connector_jars
from moldau.runtime.real.java import Unavailable
from needs import missing
from spark.sink_readers import committed
from spark.source_topics import Topics

DEADLINE_S = 180.0
MOLDAU = (sys.executable, "-c", "from moldau.cli import main; main()")
SPEC = "name: copy\nstorage: storage\nlibraries: [{glob: {include: t.py}}]\n"
FLOW = """\
from pyspark import pipelines as dp

dp.create_sink("copied", "kafka", {"kafka.bootstrap.servers": "localhost:9092", "topic": "out"})


@dp.append_flow(target="copied")
def copy():
    topic = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "localhost:9092")
    rows = topic.option("subscribe", "in").option("startingOffsets", "earliest").load()
    return rows.selectExpr("key", "upper(cast(value as string)) as value")
"""
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


@pytest.fixture(scope="module")
def jars() -> str:
    try:
        return connector_jars()
    except Unavailable as reason:
        missing(str(reason))


@pytest.fixture
def topics(requires_spark: None, tmp_path: Path) -> Iterator[Topics]:
    with MoldauServer(tmp_path / "broker") as server:
        topics = Topics(server.bootstrap_servers)
        topics.create("in", 2)
        topics.create("out")
        yield topics


def project(topics: Topics, folder: Path, text: str = FLOW) -> Path:
    folder.mkdir()
    (folder / "t.py").write_text(text.replace("localhost:9092", topics.bootstrap_servers))
    (folder / "spark-pipeline.yml").write_text(SPEC)
    return folder


def moldau(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*MOLDAU, "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_without_its_jars_both_places_are_named_and_what_to_do_and_nothing_is_fetched(
    topics: Topics, tmp_path: Path
) -> None:
    folder = project(topics, tmp_path / "project")
    for command in ("check", "run"):
        told = moldau(command, str(folder))
        assert told.returncode == 1, told.stdout + told.stderr
        assert "t.py:9: Failed to find data source: kafka." in told.stdout
        assert "`--set spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION`" in told.stdout
        assert 'Use format("moldau")' in told.stdout
    assert "Downloading" not in told.stdout + told.stderr
    text = (folder / "t.py").read_text().replace('readStream.format("kafka")', 'readStream.format("moldau")')
    (folder / "t.py").write_text(text)
    told = moldau("check", str(folder))
    assert told.returncode == 1
    assert "t.py:3: the sink 'copied': Failed to find data source: kafka." in told.stdout
    assert "`--set spark.jars=FILE,FILE`" in told.stdout


def test_with_its_jars_it_runs(topics: Topics, tmp_path: Path, jars: str) -> None:
    folder = project(topics, tmp_path / "project")
    checked = moldau("check", str(folder), "--set", f"spark.jars={jars}")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for turn in range(2):
        topics.fill("in", [f"a{turn}", f"b{turn}"], turn)
        done = moldau("run", str(folder), "--once", "--set", f"spark.jars={jars}")
        assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(committed(topics.bootstrap_servers, "out")) == [b"A0", b"A1", b"B0", b"B1"]


def shown() -> str:
    """The flow in Real-Time Mode, as the page has it."""
    _, _, section = PAGE.read_text().partition("\n### Where milliseconds matter\n")
    (block,) = re.findall(r"```python\n(.*?)```", section.partition("\n### ")[0], re.DOTALL)
    return str(block)


def test_in_real_time_mode_rows_go_through_within_a_batch(topics: Topics, tmp_path: Path, jars: str) -> None:
    topics.create("readings", 2)
    topics.create("alerts")
    folder = project(topics, tmp_path / "project", shown())
    log = tmp_path / "run.log"
    settings = ["--set", f"spark.jars={jars}", "--master", "local[4,4]"]
    with log.open("w") as out:
        run = subprocess.Popen(
            [*MOLDAU, "pipeline", "run", str(folder), *settings], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        for number in range(3):
            topics.fill("readings", [91 + number, 20], number % 2)
            wait_for(topics, b"%d" % (91 + number), run, log)
        assert not list((folder / "storage/_checkpoints").glob("**/commits/0")), (
            "it came with the batch's end"
        )
        stopped = moldau("stop", str(folder), "--timeout", str(DEADLINE_S))
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr + log.read_text()
        assert run.wait(DEADLINE_S) == 0, log.read_text()
    finally:
        run.kill()
        run.wait()
    assert committed(topics.bootstrap_servers, "alerts") == [b"91", b"92", b"93"]


def wait_for(topics: Topics, value: bytes, run: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while value not in committed(topics.bootstrap_servers, "alerts"):
        assert run.poll() is None and time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.1)
