"""Names that are replaced in a query's text, and the places of mistakes."""

from __future__ import annotations

import pytest

from moldau.spark.sql.mistakes import Mistake, explained, place_in
from moldau.spark.sql.relations import Relation, renamed, replaced
from moldau.spark.sql.texts import Text, line_and_column, split


def relation(text: str, span: str, *parts: str, is_aliased: bool = False) -> Relation:
    first = text.index(span)
    return Relation(parts, span.upper().startswith("STREAM"), first, first + len(span) - 1, is_aliased)


def test_a_name_of_several_parts_is_put_into_quotes() -> None:
    text = "SELECT * FROM shop . `my-orders` o WHERE o.x = 1"
    one = relation(text, "shop . `my-orders`", "shop", "my-orders")
    assert (
        replaced(Text("", text), one, "`shop.my-orders`").statement
        == "SELECT * FROM `shop.my-orders` o WHERE o.x = 1"
    )


def test_places_behind_a_quoted_name_are_those_that_were_written() -> None:
    text = "SELECT x\nFROM a.b JOIN c.d ON bad"
    changed = Text("", text)
    for span, parts in (("c.d", ("c", "d")), ("a.b", ("a", "b"))):
        changed = replaced(changed, relation(text, span, *parts), f"`{span}`")
    assert changed.statement == "SELECT x\nFROM `a.b` JOIN `c.d` ON bad"
    for word in ("x", "JOIN", "ON", "bad"):
        place = line_and_column(changed.whole, changed.whole.index(word))
        assert changed.as_written(place) == line_and_column(text, text.index(word))


@pytest.mark.parametrize(
    ("query", "span", "parts", "is_aliased", "expected"),
    [
        ("SELECT 1 FROM `a.b`", "`a.b`", ("a.b",), False, "SELECT 1 FROM a_b AS `a.b`"),
        ("SELECT 1 FROM `a.b` x", "`a.b`", ("a.b",), True, "SELECT 1 FROM a_b x"),
        ("SELECT 1 FROM STREAM `a.b`", "STREAM `a.b`", ("a.b",), False, "SELECT 1 FROM STREAM a_b AS `a.b`"),
        (
            "SELECT 1 FROM stream(`a.b`) WITH (x='y') WHERE 1=1",
            "stream(`a.b`) WITH (x='y')",
            ("a.b",),
            False,
            "SELECT 1 FROM stream(a_b) WITH (x='y') AS `a.b` WHERE 1=1",
        ),
        ("SELECT 1 FROM STREAM a_b AS x", "STREAM a_b AS x", ("a_b",), True, "SELECT 1 FROM STREAM a_b AS x"),
    ],
)
def test_a_relation_gets_another_name_and_keeps_the_old_one_as_its_alias(
    query: str, span: str, parts: tuple[str, ...], is_aliased: bool, expected: str
) -> None:
    whole = "CREATE STREAMING TABLE t AS " + query
    one = relation(whole, span, *parts, is_aliased=is_aliased)
    assert renamed(query, one, len(whole) - len(query), "a_b") == expected


def test_statements_keep_their_places() -> None:
    first, second = split("SELECT 1; -- one\n  SELECT ';' AS x;\n-- the end\n")
    assert (first.whole, second.statement) == ("SELECT 1", "SELECT ';' AS x")
    assert second.whole.index("SELECT") == "SELECT 1; -- one\n  SELECT".rindex("SELECT")
    assert second.blanks.strip(" ") == "\n"


def test_places_are_counted_from_one_however_spark_counts() -> None:
    assert place_in(Exception("SQLSTATE: 42703; line 3 pos 7;\n'Project")) == (3, 8)
    assert place_in(Exception("x (line 1, pos 0)\n\n== SQL ==")) == (1, 1)
    assert place_in(Exception("[X] y. SQLSTATE: 22012\n== SQL (line 2, position 2) ==\n a")) == (2, 2)
    assert place_in(Exception("nothing")) is None


def test_an_error_is_a_sentence_with_a_hint_where_there_is_one() -> None:
    class Refused(Exception):
        pass

    Refused.__module__ = "pyspark.errors.exceptions.captured"
    text = "\n[INVALID_IDENTIFIER] The unquoted identifier my-x is invalid. SQLSTATE: 42602 (line 1, pos 16)"
    mistake = explained(Refused(text), Text("", ""))
    assert (mistake.message, mistake.place) == ("The unquoted identifier my-x is invalid.", (1, 17))
    assert "back-quotes" in mistake.hint
    syntax = explained(
        Refused("[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 1 (line 1, pos 0)"), Text("", "")
    )
    assert syntax.message == "This is no SQL at 'x'."
    waited = (
        "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
        "awaitResult: "
        "\n\tat a\nCaused by: org.apache.spark.X: [A] B. SQLSTATE: 1\n"
        "Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 1\n\tat b"
    )
    assert explained(Refused(waited), Text("", "")).message == "Division by zero."
    assert explained(mistake, Text("", "")) is mistake
    assert isinstance(mistake, Mistake)
