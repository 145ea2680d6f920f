"""SQL as text, and the statements that are ours."""

from __future__ import annotations

import pytest

from moldau.spark.sql.statements import (
    Describe,
    Drop,
    Help,
    Misspelt,
    Quit,
    Save,
    ShowStreams,
    ShowTopics,
    Stop,
    own_statement,
)
from moldau.spark.sql.texts import in_one_line, is_blank, is_complete, line_and_column, mentioned, name


@pytest.mark.parametrize(
    "text", ["SELECT 1;", "SELECT ';'; -- the end", "a\n;\n", "SELECT 'it''s';", "SELECT `a``;b`;"]
)
def test_a_statement_is_complete_at_its_semicolon(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT ';", "SELECT 1 -- ;", "SELECT /* ; ", "SELECT `a;", ""])
def test_a_statement_goes_on_while_a_quote_or_a_comment_is_open(text: str) -> None:
    assert not is_complete(text)


def test_blanks_and_comments_are_no_statement() -> None:
    assert is_blank(" ; -- nothing\n /* at all */ ;")
    assert not is_blank("SELECT 1")


def test_the_history_has_a_statement_in_one_line_without_comments() -> None:
    assert (
        in_one_line("SELECT 1, -- one\n  '--no' AS `x y`\nFROM t;") == "SELECT 1,    '--no' AS `x y` FROM t;"
    )
    assert in_one_line("SELECT 'a\nb';") == ""


def test_names_are_seen_outside_strings_and_comments() -> None:
    text = "SELECT _Offset, `my-Key`, '_topic' FROM t -- _partition"
    assert {"_offset", "my-key", "t"} <= mentioned(text)
    assert not {"_topic", "_partition"} & mentioned(text)


def test_names_that_are_not_plain_stand_in_back_quotes() -> None:
    assert [name("orders"), name("my-orders"), name("a.b"), name("1st"), name("a`b")] == [
        "orders", "`my-orders`", "`a.b`", "`1st`", "`a``b`"
    ]  # fmt: skip


def test_places_count_from_one() -> None:
    assert [line_and_column("ab\ncd", index) for index in (0, 1, 3, 4, 99)] == [
        (1, 1), (1, 2), (2, 1), (2, 2), (2, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("show topics", ShowTopics()),
        ("SHOW TABLES LIKE 'a%'", ShowTopics("a%")),
        ("SHOW STREAMS", ShowStreams()),
        ("describe `my-topic.v1`", Describe("my-topic.v1")),
        ("DESC TABLE my.topic", Describe("my.topic")),
        ("DESCRIBE table", Describe("table")),
        ("STOP counts", Stop("counts")),
        ("DROP TABLE IF EXISTS x", Drop("x", True)),
        ("DROP TABLE x", Drop("x")),
        ("SAVE PIPELINE 'my folder' -- here", Save("my folder")),
        ("help", Help()),
        ("exit", Quit()),
        ("SELECT 1", None),
        ("DESCRIBE FUNCTION upper", None),
        ("SHOW FUNCTIONS", None),
    ],
)
def test_own_statements_are_told_from_sparks(text: str, expected: object) -> None:
    assert own_statement(text) == expected


@pytest.mark.parametrize("text", ["STOP my-counts", "STOP", "SAVE PIPELINE here", "SHOW TOPICS orders"])
def test_a_misspelt_statement_says_how_it_is_written(text: str) -> None:
    with pytest.raises(Misspelt, match="Write "):
        own_statement(text)


def test_topics_that_are_the_brokers_own_are_shown_when_asked_for() -> None:
    assert not ShowTopics().takes("__consumer_offsets")
    assert ShowTopics("__*").takes("__consumer_offsets")
    assert not ShowTopics("a%").takes("b")
