"""What `moldau sql` prints."""

from __future__ import annotations

import pytest

from moldau.cli.sql_screen import Screen


def test_a_table_is_aligned_and_grows_with_later_rows(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen("table", None, False)
    screen.begin(["id", "item"])
    screen.rows([["1", "tea"], ["2", None]])
    screen.rows([["300", "two\nlines"]])
    screen.end(3, False)
    assert capsys.readouterr().out == "id  item\n--  ----\n1   tea\n2   NULL\n300  two lines\n"


def test_a_result_without_rows_shows_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen("table", None, True)
    screen.begin(["id", "item"])
    screen.rows([])
    screen.end(0, False)
    out, err = capsys.readouterr()
    assert (out, err) == ("id  item\n--  ----\n", "0 rows\n")


def test_csv_has_one_head_and_quotes_what_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen("csv", None, False)
    screen.begin(["id", "item"])
    screen.rows([["1", 'a,"b"']])
    screen.begin(["id", "item"], again=True)
    screen.rows([["2", None]])
    assert capsys.readouterr().out == 'id,item\n1,"a,""b"""\n2,\n'


def test_json_is_a_document_by_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen("json", None, False)
    screen.begin(["id"])
    screen.rows([['{"id":1}'], ['{"id":2}']])
    screen.listing(["topic", "partitions", ""], [["a", "1", ""]])
    screen.say("is started")
    out, err = capsys.readouterr()
    assert out == '{"id":1}\n{"id":2}\n{"topic": "a", "partitions": "1"}\n'
    assert err == "is started\n"


def test_a_cut_result_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen("table", 1, True)
    screen.begin(["id"])
    screen.rows([["1"]])
    screen.end(1, True)
    assert capsys.readouterr().err == "the first 1 row; LIMIT says how many you want\n"
