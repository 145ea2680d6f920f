"""`moldau sql` as a person uses it: a terminal, and scripts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from bench.server import MoldauServer
from moldau.testing import Cluster
from spark.source_topics import Topics
from terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal

DEADLINE_S = 180.0
MOLDAU = (sys.executable, "-c", "from moldau.cli import main; main()")
ORDERS = [json.dumps({"id": number, "item": "tea" if number % 2 else "pot"}) for number in range(1, 6)]


@pytest.fixture(scope="module")
def topics(requires_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with MoldauServer(tmp_path_factory.mktemp("broker")) as server:
        topics = Topics(server.bootstrap_servers)
        topics.fill(topics.create("my-orders.v1"), ORDERS)
        yield topics


def moldau(topics: Topics, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [*MOLDAU, "sql", "--bootstrap", topics.bootstrap_servers, *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_a_prompt_completes_remembers_and_survives_ctrl_c(topics: Topics, tmp_path: Path) -> None:
    topics.fill(topics.create("at-prompt.v1"), ORDERS)
    command = [*MOLDAU, "sql", "--bootstrap", topics.bootstrap_servers]
    with Terminal(command, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path) as terminal:
        terminal.wait_for("moldau> ", DEADLINE_S)
        terminal.send("SELECT id, it", TAB)
        terminal.wait_for("SELECT id, it", DEADLINE_S)
        terminal.send(" FROM at-p", TAB, " ORDER BY id DESC LIMIT 1;", ENTER)
        terminal.wait_for("`at-prompt.v1` ORDER BY id DESC LIMIT 1;", DEADLINE_S)
        shown = " ".join(terminal.wait_for("moldau> ", DEADLINE_S).split())
        assert (
            "line 1, column 12: A column, variable, or function parameter with name `it` cannot be resolved."
            in shown
        )
        assert "[`id`, `item`]" in shown
        terminal.send("SELECT id, it FROM `at-prompt.v1` ORDER BY id DESC LIMIT 1;")
        terminal.send("\x01", "\x1bf\x1bf\x1bf", TAB, ENTER)
        terminal.wait_for(
            "id  item\n--  ----\n5   tea\n1 row\n", DEADLINE_S
        )  # the line itself is drawn several times
        terminal.wait_for("moldau> ", DEADLINE_S)
        assert_ctrl_c(terminal, topics)
        terminal.send(UP, UP, UP, ENTER)
        terminal.wait_for("5   tea\n1 row\n", DEADLINE_S)
        terminal.wait_for("moldau> ", DEADLINE_S)
        terminal.send(CTRL_D)
        assert terminal.process.wait(DEADLINE_S) == 0
        assert "Traceback" not in terminal.screen and "WARN" not in terminal.screen, terminal.screen
    lines = (tmp_path / "moldau" / "sql_history").read_text().splitlines()
    assert lines[1] == "SELECT id, item FROM `at-prompt.v1` ORDER BY id DESC LIMIT 1;"


def assert_ctrl_c(terminal: Terminal, topics: Topics) -> None:
    """It ends a stream, and a batch query in the middle."""
    terminal.send("SELECT id FROM STREAM `at-prompt.v1` WITH (startingOffsets='earliest');", ENTER)
    terminal.wait_for("\n5\n", DEADLINE_S)
    topics.fill("at-prompt.v1", ['{"id": 0}'])
    terminal.wait_for("0\n", DEADLINE_S)
    terminal.send(CTRL_C)
    terminal.wait_for("moldau> ", DEADLINE_S)
    terminal.send("SELECT sum(hash(a.id, b.id)) FROM range(100000000) a CROSS JOIN range(100000) b;", ENTER)
    terminal.wait_for("b;\n", DEADLINE_S)
    time.sleep(2)  # into its job, or not: both must end
    terminal.send(CTRL_C)
    terminal.wait_for("moldau> ", DEADLINE_S)


def test_scripts_get_json_and_csv_and_exit_codes(topics: Topics, tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(
        "CREATE TABLE o (id INT, item STRING) OPTIONS (topic 'my-orders.v1');"
    )
    report = tmp_path / "report.sql"
    report.write_text(
        "-- items\nSELECT item, struct(count(*) AS n) AS s, null AS x\nFROM o GROUP BY item ORDER BY item;\n"
    )
    done = moldau(
        topics,
        "--init",
        str(tmp_path / "tables.sql"),
        "-f",
        str(report),
        "--json",
        "--set",
        "spark.sql.shuffle.partitions=1",
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["item"] for line in done.stdout.splitlines()] == ["pot", "tea"]
    assert json.loads(done.stdout.splitlines()[0]) == {"item": "pot", "s": {"n": 2}, "x": None}
    csv = moldau(topics, "--csv", text="SELECT id, concat(item, ',\"') AS i FROM `my-orders.v1` WHERE id = 1")
    assert (csv.returncode, csv.stdout) == (0, 'id,i\n1,"tea,"""\n'), csv.stderr
    report.write_text("SELECT 1;\nSELECT\n  nothing FROM `my-orders.v1`;")
    wrong = moldau(topics, "-f", str(report), "--json")
    error = json.loads(wrong.stderr)["error"]
    assert (wrong.returncode, wrong.stdout) == (1, '{"1":1}\n')
    assert error["message"].startswith(f"{report}:3:3: A column")
    missing = moldau(topics, "-e", "SELECT * FROM `my-orders`")
    assert missing.returncode == 4
    assert "There is no topic, table or view 'my-orders'. Did you mean my-orders.v1?" in " ".join(
        missing.stderr.split()
    ).replace("error: ", "")


def test_no_broker_is_said_before_spark_is_started() -> None:
    done = subprocess.run(
        [*MOLDAU, "sql", "--bootstrap", "127.0.0.1:1", "-e", "SELECT 1"],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_a_streaming_table_of_a_script_runs_until_it_is_told_to_end(topics: Topics, tmp_path: Path) -> None:
    statement = "CREATE STREAMING TABLE teas AS SELECT id FROM STREAM `my-orders.v1` WHERE item = 'tea'"
    command = [*MOLDAU, "sql", "--bootstrap", topics.bootstrap_servers, "-e", statement]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert read_first(topics, "teas") == {"id": 1}
            assert run.poll() is None
            os.kill(run.pid, signal.SIGTERM)
            out, errors = run.communicate(timeout=DEADLINE_S)
        finally:
            run.kill()
    assert run.returncode == 0, errors
    assert out == "teas is started, and writes to the topic teas.\n"
    assert errors.splitlines()[-1] == "teas is stopped"


def test_a_profile_leads_to_a_cluster_with_tls_and_passwords(requires_spark: None, tmp_path: Path) -> None:
    profiles = tmp_path / "moldau" / "profiles"
    profiles.mkdir(parents=True)
    with Cluster(secure=True, topics={"orders": 1}) as cluster:
        settings = cluster.client_settings()
        producer = Producer(settings)
        for order in ORDERS:
            producer.produce("orders", order)
        assert producer.flush(DEADLINE_S) == 0
        profile = profiles / "shop.properties"
        profile.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        profile.chmod(0o600)
        query = "SELECT count(*) AS n FROM orders"
        run = subprocess.run(
            [*MOLDAU, "sql", "--profile", "shop", "-e", query, "--csv"],
            env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert run.stdout.split() == ["n", str(len(ORDERS))], run.stderr


def read_first(topics: Topics, topic: str) -> Any:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": topics.bootstrap_servers,
        "group.id": "r",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 500})
    consumer.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                return json.loads(message.value() or b"")
    finally:
        consumer.close()
    raise AssertionError(f"nothing came into {topic}")


def test_what_the_page_shows_runs(topics: Topics, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    blocks = re.findall(r"```sql\n(.*?)```", page.partition("\n## SQL\n")[2], re.DOTALL)
    assert len(blocks) == 2
    minutes = [f"2026-11-18T10:{minute:02}:00Z" for minute in range(15)]
    orders = [
        {"id": number, "item": "tea", "price": 99.5 + number, "time": at} for number, at in enumerate(minutes)
    ]
    topics.fill(topics.create("orders"), map(json.dumps, orders))
    topics.fill(topics.create("app-log.v1"), ["started"])
    wanted = "SELECT count(*) FROM `orders`; SELECT * FROM lines;"
    done = moldau(topics, "-f", "-", "--storage", str(tmp_path), text="".join(blocks) + wanted)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["tea", "15", "14"] in lines
    assert ["2026-11-18", "10:00:00", "tea", "99.5"] in lines
    assert "large_orders is stopped." in done.stdout
    assert lines[-1] == ["started"]
