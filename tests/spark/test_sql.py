"""SQL over topics: what is there, what comes, and what goes on running."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.server import MoldauServer
from spark.source_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.sql.session import Session

DEADLINE_S = 120.0
ORDERS = [
    {"id": 1, "item": "tea", "price": 3.5, "time": "2026-11-18T10:00:00Z"},
    {"id": 2, "item": "pot", "price": 30, "time": "2026-11-18T10:00:30Z"},
    {"id": 3, "item": "tea", "price": 4, "time": "2026-11-18T10:01:00Z"},
]


class Recorded:
    """A screen that remembers."""

    wants_json = False

    def __init__(self) -> None:
        self.rows_max: int | None = None
        self.columns: list[str] = []
        self.shown: list[list[str | None]] = []
        self.said: list[str] = []
        self.notes: list[str] = []
        self.is_cut = False
        self.news = threading.Condition()

    def begin(self, columns: Sequence[str], again: bool = False) -> None:
        self.columns = list(columns)
        self.shown = []

    def rows(self, rows: Sequence[Sequence[str | None]]) -> None:
        with self.news:
            self.shown += [list(row) for row in rows]
            self.news.notify_all()

    def end(self, count: int, is_cut: bool) -> None:
        self.is_cut = is_cut

    def listing(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.columns, self.shown = list(columns), [list(row) for row in rows]

    def streams(self, flows: Sequence[Any]) -> None:
        self.shown = [[flow.flow, flow.state.value] for flow in flows]

    def say(self, text: str) -> None:
        self.said.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def help(self) -> None:
        self.said.append("help")


class Sql:
    """A session with its screen."""

    def __init__(self, session: Session, screen: Recorded) -> None:
        self.session = session
        self.screen = screen

    def run(self, text: str) -> list[list[str | None]]:
        from moldau.spark.sql.texts import split

        for statement in split(text):
            assert self.session.execute(statement)
        return self.screen.shown

    def refused(self, text: str) -> Any:
        from moldau.spark.sql.mistakes import Mistake

        with pytest.raises(Mistake) as refusal:
            self.run(text)
        return refusal.value


@pytest.fixture(scope="module")
def topics(requires_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with MoldauServer(tmp_path_factory.mktemp("broker")) as server:
        topics = Topics(server.bootstrap_servers)
        topics.create("orders", 2)
        topics.fill("orders", map(json.dumps, ORDERS[:2]), keys=["a", "b"])
        topics.fill("orders", map(json.dumps, ORDERS[2:]), 1)
        yield topics


@pytest.fixture
def sql(spark: SparkSession, topics: Topics, tmp_path: Path) -> Iterator[Sql]:
    from moldau.spark.pipeline.project import Project
    from moldau.spark.sql.cluster import Brokers
    from moldau.spark.sql.session import Session

    screen = Recorded()
    kafka = {"bootstrap.servers": topics.bootstrap_servers}
    project = Project(tmp_path, "sql", "sql", str(tmp_path / "kept"))
    session = Session(spark, Brokers(kafka, 30.0), kafka, project, True, screen)
    yield Sql(session, screen)
    session.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def values(topics: Topics, topic: str, count: int) -> list[tuple[str | None, Any]]:
    """The first records of a topic, keys and documents."""
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": topics.bootstrap_servers,
        "group.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[tuple[str | None, Any]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            if message.error() is None:
                key = message.key()
                found.append((key.decode() if key else None, json.loads(message.value())))
    consumer.close()
    return found


def test_a_topic_is_a_table_by_the_fields_of_its_json(sql: Sql) -> None:
    rows = sql.run("SELECT * FROM orders ORDER BY id")
    assert sql.screen.columns == ["id", "item", "price", "time"]
    assert rows == [
        ["1", "tea", "3.5", "2026-11-18 10:00:00"],
        ["2", "pot", "30.0", "2026-11-18 10:00:30"],
        ["3", "tea", "4.0", "2026-11-18 10:01:00"],
    ]
    assert sql.run("SELECT item, count(*) AS n FROM orders GROUP BY item ORDER BY item") == [
        ["pot", "1"],
        ["tea", "2"],
    ]
    assert sql.run("WITH o AS (SELECT id FROM orders) SELECT count(*) FROM o") == [["3"]]


def test_metadata_are_columns_where_a_statement_names_them(sql: Sql) -> None:
    rows = sql.run(
        "SELECT _key, _partition, _offset, id, _topic FROM orders WHERE _timestamp IS NOT NULL ORDER BY id"
    )
    assert rows == [
        ["a", "0", "0", "1", "orders"],
        ["b", "0", "1", "2", "orders"],
        [None, "1", "0", "3", "orders"],
    ]
    described = {row[0]: row[1:] for row in sql.run("DESCRIBE orders")}
    assert described["price"] == ["DOUBLE", ""]
    assert described["_offset"] == ["BIGINT", "metadata"]


def test_names_with_dots_and_dashes_are_topics(sql: Sql, topics: Topics) -> None:
    topics.fill(topics.create("shop.my-orders"), ['{"id": 7}'])
    topics.fill(topics.create("shop.orders"), ['{"id": 8}'])
    assert sql.run("SELECT * FROM `shop.my-orders`") == [["7"]]
    assert sql.run("SELECT `shop.my-orders`.id FROM `shop.my-orders`") == [["7"]]
    assert sql.run("SELECT o.id, p.id FROM shop.orders AS o JOIN shop.`my-orders` p ON p.id < o.id") == [
        ["8", "7"]
    ]
    mistake = sql.refused("SELECT * FROM shop.my-orders")
    assert "back-quotes" in mistake.hint + mistake.message


def test_records_that_are_no_json_stand_in_a_column(sql: Sql, topics: Topics) -> None:
    topics.fill(topics.create("mixed"), ['{"id": 1}', "oops", '{"id": 2}'])
    assert sql.run("SELECT id, _corrupt FROM mixed ORDER BY _offset") == [
        ["1", None],
        [None, "oops"],
        ["2", None],
    ]
    assert sql.screen.notes == [
        "1 of 3 records of mixed that were looked at are no JSON objects: their text stands in the column _corrupt."
    ]


def test_fields_of_several_types_are_text(sql: Sql, topics: Topics) -> None:
    topics.fill(topics.create("several"), ['{"x": 1, "n": null}', '{"x": "a"}', '{"x": {"y": [2]}}', "bad"])
    assert sql.run("SELECT x, n, _corrupt FROM several ORDER BY _offset") == [
        ["1", None, None], ["a", None, None], ['{"y":[2]}', None, None], [None, None, "bad"]
    ]  # fmt: skip


def test_declared_tables_win_over_what_is_seen(sql: Sql, topics: Topics) -> None:
    topics.fill(topics.create("lines"), ['{"n": "1"}', "plain"])
    assert sql.run(
        "CREATE TABLE text (line STRING) OPTIONS (topic 'lines', format 'string'); SELECT * FROM TEXT"
    ) == [
        ['{"n": "1"}'],
        ["plain"],
    ]
    sql.run("CREATE TABLE orders (item STRING, price DECIMAL(6,2)); SELECT * FROM orders WHERE price > 10")
    assert sql.screen.shown == [["pot", "30.00"]]
    sql.run("DROP TABLE orders; SELECT * FROM orders LIMIT 1")
    assert len(sql.screen.columns) == 4


def test_an_empty_topic_and_one_made_again_are_seen_as_they_are(sql: Sql, topics: Topics) -> None:
    topics.create("again")
    assert sql.run("SELECT * FROM again") == []
    assert (sql.screen.columns, sql.screen.notes) == (
        ["value"],
        ["again has no records yet: its one column is value."],
    )
    topics.fill("again", ["text"])
    assert sql.run("SELECT * FROM again") == [["text"]]
    topics.delete("again")
    topics.fill(topics.create("again", 3), ['{"b": true}'], 2)
    assert sql.run("SELECT * FROM again") == [["true"]]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("SELECT id,\n  prise FROM orders", (2, 3), "[`price`, "),
        ("SELECT *\nFROM ordes", (2, 6), "There is no topic, table or view 'ordes'."),
        ("SELECT * FORM orders", (1, 15), "This is no SQL at"),
        ("SELECT 1;\n  SELECT id,\n 1/(id-id) FROM orders", (3, 2), "Division by zero"),
        ("SELECT * FROM STREAM orders ORDER BY id", None, "cannot be shown as a stream"),
        (
            "SELECT o.id FROM STREAM orders o JOIN orders p ON o.id = p.id",
            (1, 39),
            "as a stream and as a table",
        ),
        ("INSERT INTO orders SELECT 1", None, "not taken here"),
        ("CREATE TABLE t (a INT, b INT) OPTIONS (format 'string')", None, "has one column"),
        ("CREATE STREAMING TABLE t AS SELECT * FROM orders", None, "reads no stream"),
        ("CREATE STREAMING TABLE orders AS SELECT * FROM STREAM orders", (1, 48), "which it writes to"),
        (
            "CREATE STREAMING TABLE t AS SELECT item, count(*) FROM STREAM orders GROUP BY item",
            None,
            "watermark",
        ),
        (
            "CREATE STREAMING TABLE t TBLPROPERTIES ('key'='x') AS SELECT id FROM STREAM orders",
            None,
            "no column",
        ),
        ("CREATE VIEW v AS SELECT 1", None, "not taken here"),
        ("STOP nothing", None, "No streaming table 'nothing' runs."),
        ("SAVE PIPELINE 'x'", None, "no streaming table"),
        ("DESCRIBE nothing", None, "There is no topic"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_place(sql: Sql, text: str, place: Any, words: str) -> None:
    mistake = sql.refused(text)
    assert (mistake.place, words in mistake.message) == (place, True), (mistake.place, mistake.message)
    assert "\n" not in mistake.message and "SQLSTATE" not in mistake.message


def test_rows_that_come_are_shown_until_the_limit(sql: Sql, topics: Topics) -> None:
    topics.fill(topics.create("live"), ['{"n": 0}'])

    def fill() -> None:
        for n in range(1, 200):
            if done.wait(0.2):
                return
            topics.fill("live", [json.dumps({"n": n})])

    done = threading.Event()
    filling = threading.Thread(target=fill)
    filling.start()
    try:
        shown = sql.run("SELECT n, n * 2 AS twice FROM STREAM live WHERE n > 0 LIMIT 3")
    finally:
        done.set()
        filling.join()
    first = int(shown[0][0] or 0)
    assert shown == [[str(n), str(2 * n)] for n in range(first, first + 3)]
    assert sql.run("SELECT n FROM STREAM(live) WITH (startingOffsets='earliest') LIMIT 2") == [["0"], ["1"]]


@pytest.mark.long
def test_windows_and_joins_of_streams(sql: Sql, topics: Topics) -> None:
    topics.fill(topics.create("prices"), ['{"item": "tea", "price": 5}', '{"item": "pot", "price": 40}'])
    topics.fill(
        topics.create("clicks"),
        [json.dumps({"item": "tea", "at": f"2026-11-18T10:0{minute}:00Z"}) for minute in (0, 0, 1, 5)],
    )
    earliest = "WITH (startingOffsets='earliest')"
    assert sql.run(
        f"SELECT window.start, count(*) FROM STREAM clicks {earliest} WATERMARK at DELAY OF INTERVAL 1 SECONDS "
        "GROUP BY window(at, '1 minute') LIMIT 2"
    ) == [["2026-11-18 10:00:00", "2"], ["2026-11-18 10:01:00", "1"]]
    assert sql.run(
        f"SELECT c.item, p.price FROM STREAM clicks {earliest} c JOIN prices p ON c.item = p.item LIMIT 1"
    ) == [["tea", "5"]]
    both = sql.run(
        f"SELECT c.item, o.id FROM STREAM clicks {earliest} WATERMARK at DELAY OF INTERVAL 1 MINUTE AS c "
        f"JOIN STREAM orders {earliest} WATERMARK time DELAY OF INTERVAL 1 MINUTE AS o ON c.item = o.item "
        "AND o.time BETWEEN c.at AND c.at + INTERVAL 30 SECONDS LIMIT 3"
    )
    assert sorted(map(tuple, both)) == [("tea", "1"), ("tea", "1"), ("tea", "3")]


def test_a_streaming_table_writes_to_a_topic_until_it_is_stopped(sql: Sql, topics: Topics) -> None:
    sql.run(
        "CREATE STREAMING TABLE teas TBLPROPERTIES ('key' = 'item', 'partitions' = '2') AS "
        "SELECT item, price * 2 AS twice FROM STREAM orders WHERE item = 'tea'"
    )
    assert sql.screen.said == ["teas is started, and writes to the topic teas."]
    expected = [("tea", {"item": "tea", "twice": 7.0}), ("tea", {"item": "tea", "twice": 8.0})]
    assert sorted(values(topics, "teas", 2), key=str) == expected
    assert sql.run("SHOW STREAMS") == [["teas", "running"]]
    assert sql.run("SELECT twice FROM teas ORDER BY 1") == [["7.0"], ["8.0"]]
    assert ["teas", "2", "written by a streaming table"] in sql.run("SHOW TOPICS LIKE 't*'")
    sql.run("STOP Teas")
    assert sql.run("SHOW STREAMS") == [["teas", "stopped"]]


def test_a_streaming_table_in_the_lake_is_a_table_of_the_session(sql: Sql, tmp_path: Path) -> None:
    sql.run(
        "CREATE TEMPORARY VIEW teas_only AS SELECT id, item FROM STREAM orders WITH (startingOffsets='earliest')"
    )
    sql.run("CREATE STREAMING TABLE kept USING delta PARTITIONED BY (item) AS SELECT * FROM STREAM teas_only")
    wait_for(lambda: sql.session.streams.flows[0].rows == 3)
    assert sql.run("SELECT id FROM kept ORDER BY id") == [["1"], ["2"], ["3"]]
    assert sorted(path.name for path in (tmp_path / "kept/kept").glob("item=*")) == ["item=pot", "item=tea"]


@pytest.mark.long
def test_a_saved_project_goes_on_where_the_streaming_table_stood(
    sql: Sql, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    from moldau.spark.pipeline.project import load_project
    from spark.pipelines import run_once

    topics.fill(topics.create("shop.sales-1"), ['{"item": "tea", "n": 1}', '{"item": "pot", "n": 2}'])
    topics.fill(topics.create("items"), ['{"item": "tea", "name": "green"}'])
    sql.run(
        "CREATE TEMPORARY VIEW sold AS SELECT item, n FROM STREAM `shop.sales-1` WITH (startingOffsets='earliest');"
        "CREATE STREAMING TABLE named TBLPROPERTIES ('key'='name', 'moldau.exactlyOnce'='true') AS "
        "SELECT name, n FROM STREAM sold JOIN items ON sold.item = items.item;"
        "CREATE STREAMING TABLE `big.ones` AS SELECT *, _offset FROM STREAM `shop.sales-1` "
        "WHERE `shop.sales-1`.n > 1"
    )
    assert values(topics, "named", 1) == [("green", {"name": "green", "n": 1})]
    assert [value["n"] for _, value in values(topics, "big.ones", 1)] == [2]
    folder = tmp_path / "saved"
    sql.run(f"SAVE PIPELINE '{folder}'")
    assert sql.session.streams.running() == []
    topics.fill("shop.sales-1", ['{"item": "tea", "n": 3}'])
    runner, watching = run_once(spark, load_project(folder))
    assert runner.all_went_well, watching.events
    assert [value["n"] for _, value in values(topics, "named", 2)] == [1, 3]
    assert [value["n"] for _, value in values(topics, "big.ones", 2)] == [2, 3]


@pytest.mark.parametrize("rows_max", [None, 1000])
def test_ctrl_c_ends_the_spark_job_of_a_query(sql: Sql, spark: SparkSession, rows_max: int | None) -> None:
    sql.screen.rows_max = rows_max

    def press() -> None:
        tracker = spark.sparkContext.statusTracker()
        wait_for(lambda: len(tracker.getActiveJobsIds()) > 0)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            sql.run("SELECT sum(hash(a.id, b.id)) FROM range(100000000) a CROSS JOIN range(100000) b")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert sql.run("SELECT 1") == [["1"]]


def test_a_result_is_cut_where_a_person_looks(sql: Sql) -> None:
    sql.screen.rows_max = 2
    assert len(sql.run("SELECT * FROM orders")) == 2
    assert sql.screen.is_cut
    assert len(sql.run("SELECT * FROM orders LIMIT 2")) == 2
    assert not sql.screen.is_cut
