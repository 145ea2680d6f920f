"""Texts: SQL files cut into statements, Spark's errors cut to a sentence, durations, and what `new` writes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from moldau.spark.pipeline.flows import seconds
from moldau.spark.pipeline.sentences import line_in, sentence, shortened
from moldau.spark.pipeline.sql import split
from moldau.spark.pipeline.template import write_project

UNRESOLVED = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `pge` cannot be resolved. Did you mean [`page`]? "
    "SQLSTATE: 42703; line 8 pos 6;\n'Project ['pge]\n+- Relation"
)
IN_PYTHON = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: x SQLSTATE: XXKST\n=== Streaming Query ===\n"
    "Caused by: org.apache.spark.SparkException: ...\nTraceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n    go()\n'
    "moldau.spark.source.errors.OptionError: there is no topic x\n\n\tat org.apache"
)


def test_statements_are_cut_at_semicolons_outside_quotes_and_comments() -> None:
    text = "-- a; b\nSELECT 'x;y', \"p;q\", `r;s`;\n\n/* c;\n d */ SELECT 2 -- e;\n;\n;\n"
    assert [(statement.line, statement.text) for statement in split(text)] == [
        (2, "SELECT 'x;y', \"p;q\", `r;s`"),
        (5, "SELECT 2 -- e;"),
    ]


def test_a_quote_in_a_comment_opens_nothing() -> None:
    assert [statement.line for statement in split("SELECT 1; -- it's\nSELECT 2;")] == [1, 2]


def test_an_error_of_spark_is_cut_to_its_sentence() -> None:
    assert shortened(UNRESOLVED) == "A column with name `pge` cannot be resolved. Did you mean [`page`]?"
    assert line_in(Exception(UNRESOLVED)) == 8
    assert line_in(Exception("no line")) is None


def test_an_error_of_a_python_worker_is_its_last_line() -> None:
    assert shortened(IN_PYTHON) == "OptionError: there is no topic x."


def test_an_error_of_java_is_its_message() -> None:
    text = "An error occurred while calling o1.load.\n: org.apache.SparkException: [A_B] No x. SQLSTATE: 1\n\tat a"
    assert shortened(text) == "No x."


def test_other_errors_keep_their_type() -> None:
    assert sentence(ZeroDivisionError("division by zero")) == "ZeroDivisionError: division by zero."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 seconds", 10.0),
        ("500ms", 0.5),
        ("1 minute", 60.0),
        ("2 h", 7200.0),
        ("1.5 s", 1.5),
        ("soon", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("topic", ["orders", "web.clicks-v2", "7days"])
def test_a_new_project_has_a_spec_python_that_parses_and_sql(tmp_path: Path, topic: str) -> None:
    written = write_project(tmp_path / "shop", topic, "broker:9092")
    assert [path.suffix for path in written] == [".yml", ".py", ".sql", ""]
    code = written[1].read_text()
    ast.parse(code)
    assert f'"{topic}"' in code and "broker:9092" in code


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(FileExistsError):
        write_project(tmp_path, "orders", "broker:9092")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
