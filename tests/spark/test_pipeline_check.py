"""A check finds every mistake of a project with its file and line, and writes nothing; SQL files go through Spark's
parser, whose internal names these tests guard.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark.pipeline.declared import Declared, Kind, Mistake, Mistakes
from moldau.spark.pipeline.opening import open_project
from spark.pipelines import READ_ORDERS, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline.graph import Built

SQL = """\
-- Every statement that a project may have; a semicolon in a comment; ends nothing
SET spark.sql.ansi.enabled = false;
CREATE STREAMING TABLE kept (id INT, item STRING) PARTITIONED BY (item) TBLPROPERTIES ('moldau.compactAfter' = '9');
CREATE FLOW f AS INSERT INTO kept BY NAME
  WITH recent AS (SELECT * FROM STREAM orders) SELECT id, item FROM recent WHERE id IN (SELECT id FROM known);
CREATE STREAMING TABLE copied AS SELECT 'a;b' AS text, * FROM STREAM kept;
CREATE TEMPORARY VIEW cheap AS SELECT * FROM STREAM orders WHERE price < 1;
CREATE MATERIALIZED VIEW counted AS SELECT item, count(*) AS n FROM kept GROUP BY item;
CREATE STREAMING TABLE latest;
CREATE FLOW changes AS AUTO CDC INTO latest FROM STREAM orders KEYS (id)
  APPLY AS DELETE WHEN price < 0 SEQUENCE BY price COLUMNS * EXCEPT (price) STORED AS SCD TYPE 2
  TRACK HISTORY ON * EXCEPT (item);
"""


def declared(spark: SparkSession, text: str) -> Declared:
    from moldau.spark.pipeline.sql import declare_statements

    whole = Declared()
    declare_statements(spark, whole, text, "t/all.sql")
    return whole


def built(spark: SparkSession, folder: Path, files: dict[str, str]) -> list[Built]:
    return open_project(spark, write(folder, files)).built


def mistakes(spark: SparkSession, folder: Path, files: dict[str, str]) -> list[str]:
    with pytest.raises(Mistakes) as raised:
        built(spark, folder, files)
    assert not (folder / "storage").exists()
    return [str(mistake) for mistake in raised.value.found]


def test_this_pyspark_has_the_internal_names_that_sql_files_are_read_with(spark: SparkSession) -> None:
    """Where this fails, a new PySpark has renamed what `moldau.spark.pipeline.sql` and `refusals` use."""
    from pyspark import __version__

    whole = declared(spark, SQL)
    assert {name: output.kind for name, output in whole.outputs.items()} == {
        "kept": Kind.TABLE,
        "copied": Kind.TABLE,
        "cheap": Kind.VIEW,
        "counted": Kind.MATERIALIZED,
        "latest": Kind.TABLE,
    }, __version__
    kept = whole.outputs["kept"]
    assert (kept.schema, kept.partition_by) == ("`id` INT, `item` STRING", ("item",))
    assert kept.properties == {"moldau.compactAfter": "9"}
    assert {name: (flow.target, flow.place.line) for name, flow in whole.flows.items()} == {
        "f": ("kept", 4),
        "copied": ("copied", 6),
        "cheap": ("cheap", 7),
        "counted": ("counted", 8),
        "changes": ("latest", 10),
    }
    assert whole.flows["f"].conf == {"spark.sql.ansi.enabled": "false"}
    assert whole.flows["f"].query.relations() == [("orders", True), ("known", False)]  # type: ignore[attr-defined]
    change = whole.flows["changes"].change_data
    assert change is not None
    assert (change.source, change.keys, change.scd_type) == ("orders", ("id",), 2)
    assert (change.except_columns, change.track_history_except) == (("price",), ("item",))
    assert "price" in change.sequence_by and "price" in (change.delete_when or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", "t/all.sql:1: is not a statement of a pipeline."),
        ("\n\nCREATE STREAMING TABLE a AS\nSELECT FROM (", "t/all.sql:4: Syntax error"),
        ("CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1", "t/all.sql:1: a view of a pipeline is temporary."),
        (
            "CREATE STREAMING TABLE a;\nCREATE STREAMING TABLE a",
            "t/all.sql:2: there is a streaming table 'a' already",
        ),
        (
            "CREATE STREAMING TABLE a PARTITIONED BY (days(b))",
            "t/all.sql:1: a table is partitioned by columns",
        ),
    ],
)
def test_a_wrong_statement_is_named_with_its_line(spark: SparkSession, text: str, expected: str) -> None:
    with pytest.raises(Mistake) as raised:
        declared(spark, text)
    assert str(raised.value).startswith(expected)


def test_a_project_that_is_right_is_built_in_an_order_of_dependence(
    spark: SparkSession, tmp_path: Path
) -> None:
    python = READ_ORDERS + (
        '@dp.table\ndef last():\n    return spark.sql("SELECT * FROM STREAM middle")\n'
        '@dp.table\ndef middle():\n    return spark.readStream.table("first")\n'
        '@dp.materialized_view\ndef counted():\n    return spark.table("last").groupBy("item").count()\n'
        '@dp.table\ndef first():\n    return spark.readStream.table("orders")\n'
    )
    sql = "CREATE STREAMING TABLE enriched AS SELECT o.*, count FROM STREAM orders o JOIN counted c USING (item)"
    found = built(spark, tmp_path, {"a.py": python, "b.sql": sql})
    assert [(one.flow.name, one.reads) for one in found] == [
        ("first", ()),
        ("middle", ("first",)),
        ("last", ("middle",)),
        ("counted", ("last",)),
        ("enriched", ("counted",)),
    ]
    assert [source.format for source in found[0].sources] == []
    assert not (tmp_path / "storage").exists()


def test_mistakes_are_found_all_at_once_with_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    python = READ_ORDERS + (
        "@dp.table\n"  # 8
        "def misspelled():\n"
        '    rows = spark.readStream.table("orders")\n'
        "    return rows.where(\n"
        '        F.col("prize") > 1)\n'
        "@dp.table\n"  # 13
        'def unknown():\n    return spark.readStream.table("ordrs")\n'
        "@dp.table\n"  # 16
        'def depends():\n    return spark.readStream.table("misspelled")\n'
        "@dp.table\n"  # 19
        "def broken():\n    return 1 / 0\n"
        "@dp.table\n"  # 22
        "def nothing():\n    return None\n"
        'dp.create_sink("out", "console")\n'  # 25
        '@dp.append_flow(target="out")\n'
        'def reads_a_sink():\n    return spark.readStream.table("out")\n'
        '@dp.append_flow(target="elsewhere")\n'  # 29
        'def lost():\n    return spark.readStream.table("orders")\n'
    )
    sql = "CREATE STREAMING TABLE x AS\nSELECT id,\n  nme\nFROM STREAM orders"
    expected = [
        "t/a.py:12: A column, variable, or function parameter with name `prize` cannot be resolved.",
        "t/a.py:15: The table or view `ordrs` cannot be found.",
        "t/a.py:21: ZeroDivisionError: division by zero.",
        "t/a.py:22: the query of 'nothing' gives NoneType, not a DataFrame.",
        "t/a.py:26: 'reads_a_sink' reads 'out', which is a sink.",
        "t/a.py:29: the flow 'lost' writes to 'elsewhere', which is not declared.",
        "t/b.sql:3: A column, variable, or function parameter with name `nme` cannot be resolved.",
    ]
    found = mistakes(spark, tmp_path, {"a.py": python, "b.sql": sql})
    found = [
        line.replace("t/a.py:11:", "t/a.py:12:") for line in found
    ]  # Python 3.11 names the call's first line
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected


def test_what_cannot_run_endlessly_is_refused_where_it_was_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    python = (
        READ_ORDERS
        + (
            "@dp.table\ndef batch():\n    return spark.range(3)\n"  # 8
            '@dp.table\ndef in_order():\n    return spark.readStream.table("orders").orderBy("id")\n'  # 11
            '@dp.table\ndef for_ever():\n    return spark.readStream.table("orders").groupBy("item").count()\n'  # 14
            '@dp.materialized_view\ndef view():\n    return spark.readStream.table("orders")\n'  # 17
            "@dp.materialized_view\ndef fine():\n    return spark.range(3)\n"  # 20
            '@dp.table\ndef of_a_view():\n    return spark.readStream.table("fine")\n'  # 23
        )
    )
    found = mistakes(spark, tmp_path, {"a.py": python})
    expected = [
        "t/a.py:8: the flow 'batch' into the streaming table 'batch' reads no stream",
        "t/a.py:11: 'in_order' cannot run endlessly: Sorting is not supported",
        "t/a.py:14: 'for_ever' cannot run endlessly: Invalid streaming output mode: append.",
        "t/a.py:17: the materialized view 'view' reads a stream.",
        "t/a.py:23: 'of_a_view' reads 'fine' as a stream, but a materialized view is computed anew",
    ]
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected


def test_flows_that_read_each_other_are_a_circle(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        "CREATE STREAMING TABLE a AS SELECT * FROM STREAM b;\nCREATE STREAMING TABLE b AS SELECT * FROM STREAM a;\n"
        "CREATE STREAMING TABLE c (x INT);\nCREATE FLOW f AS INSERT INTO c BY NAME SELECT x FROM STREAM c"
    )
    assert mistakes(spark, tmp_path, {"a.sql": sql}) == [
        "t/a.sql:1: the flows read each other in a circle: a reads b reads a."
    ]
    alone = sql.partition("CREATE STREAMING TABLE c")
    assert mistakes(spark, tmp_path, {"a.sql": alone[1] + alone[2]}) == [
        "t/a.sql:2: the flows read each other in a circle: f reads f."
    ]


def test_columns_of_flows_into_one_table_have_one_type(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        "CREATE STREAMING TABLE t;\n"
        "CREATE FLOW f AS INSERT INTO t BY NAME SELECT id, item FROM STREAM orders;\n"
        "CREATE FLOW g AS INSERT INTO t BY NAME SELECT price AS id FROM STREAM orders;\n"
        "CREATE STREAMING TABLE u (id INT);\n"
        "CREATE FLOW h AS INSERT INTO u BY NAME SELECT id, price FROM STREAM orders;\n"
    )
    assert mistakes(spark, tmp_path, {"a.py": READ_ORDERS, "b.sql": sql}) == [
        "t/b.sql:3: the column 'id' is double here and int in the flow at t/b.sql:2.",
        "t/b.sql:5: 'h' has a column 'price', which the schema of 'u' at t/b.sql:4 does not have.",
    ]


def test_options_and_rows_that_our_formats_refuse_are_found_before_a_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    python = READ_ORDERS + (
        "SERVERS = {'kafka.bootstrap.servers': 'localhost:1'}\n"  # 8
        "dp.create_sink('nowhere', 'moldau', {'topic': 'x'})\n"
        "dp.create_sink('topic', 'moldau', {**SERVERS, 'topic': 'x'})\n"
        "dp.create_sink('lake', 'moldau_lake', {'path': '/x', 'partitonBy': 'id'})\n"
        "for sink in ('nowhere', 'topic', 'lake'):\n"  # 12
        "    @dp.append_flow(target=sink, name='to_' + sink)\n"
        "    def rows():\n        return spark.readStream.table('orders')\n"
        "@dp.table\n"  # 16
        "def everything():\n    return spark.readStream.format('moldau').options(**SERVERS).load()\n"
    )
    found = mistakes(spark, tmp_path, {"a.py": python})
    expected = [
        "t/a.py:9: the sink 'nowhere': Option 'kafka.bootstrap.servers' must be specified",
        "t/a.py:11: the sink 'lake': unknown option partitonby: did you mean partitionBy?",
        "t/a.py:13: the rows of 'to_topic': Required attribute 'value' not found.",
        "t/a.py:18: ",
    ]
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected
    assert "subscribe" in found[3]


def test_formats_that_spark_does_not_find_and_what_real_time_mode_cannot_do_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    python = READ_ORDERS + (
        "SERVERS = {'kafka.bootstrap.servers': 'localhost:1', 'subscribe': 'x', 'topic': 'x'}\n"  # 8
        "dp.create_sink('by_connector', 'kafka', SERVERS)\n"
        "dp.create_sink('nowhere', 'no_such')\n"
        "dp.create_sink('fine', 'console')\n"
        "dp.create_sink('topic', 'moldau', SERVERS)\n"
        "for sink in ('by_connector', 'nowhere', 'fine'):\n"  # 13
        "    @dp.append_flow(target=sink, name='to_' + sink)\n"
        "    def rows():\n        return spark.readStream.table('orders')\n"
        "@dp.append_flow(target='fine', spark_conf={'pipelines.trigger': 'RealTime'})\n"  # 17
        "def at_once():\n    return spark.readStream.format('moldau').options(**SERVERS).load()\n"
        "@dp.table(spark_conf={'pipelines.trigger': 'realtime'})\n"  # 20
        "def into_a_table():\n    return spark.readStream.format('rate').load()\n"
        "@dp.append_flow(target='topic', spark_conf={'pipelines.trigger': 'Fast'})\n"  # 23
        "def fast():\n    return spark.readStream.format('rate').load()\n"
    )
    with pytest.raises(Mistakes) as raised:
        built(spark, tmp_path, {"a.py": python})
    found = {str(mistake): mistake.hint for mistake in raised.value.found}
    expected = [
        "t/a.py:9: the sink 'by_connector': Failed to find data source: kafka.",
        "t/a.py:10: the sink 'nowhere': Failed to find the data source: no_such.",
        "t/a.py:17: 'at_once' is to run in Real-Time Mode, and reads with format(\"moldau\").",
        "t/a.py:20: 'into_a_table' is to run in Real-Time Mode, and reads with format(\"rate",
        "t/a.py:23: pipelines.trigger=Fast is unknown.",
    ]
    assert len(found) == len(expected), found
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected
    assert "--set spark.jars" in next(iter(found.values())) and list(found.values())[1] == ""
