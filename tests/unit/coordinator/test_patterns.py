"""Expressions of clients: what RE2 takes is taken, and none can hold the broker up."""

from __future__ import annotations

import pytest

from moldau.coordinator.patterns import LENGTH_MAX, BadPattern, compile_pattern


@pytest.mark.parametrize("text", [None, ""])
def test_no_expression_is_no_filter(text: str | None) -> None:
    assert compile_pattern(text) is None


@pytest.mark.parametrize(
    ("text", "fits", "does_not"),
    [
        ("billing-.*", "billing-1", "shipping-1"),
        ("(a|b)+", "abba", "abc"),
        ("[a-z]{2,3}\\d?", "ab1", "a1"),
        ("(billing|shipping)-\\d+", "shipping-12", "billing-"),
    ],
)
def test_an_expression_fits_as_a_whole(text: str, fits: str, does_not: str) -> None:
    pattern = compile_pattern(text)
    assert pattern is not None
    assert pattern.fullmatch(fits)
    assert not pattern.fullmatch(does_not)


@pytest.mark.parametrize(
    "text",
    [
        "[", "(", "a**", "(a+)+b", "(a*)*", "((ab?){2,})+", "(?=a)b", "(?!a)b", "(?<=a)b", "(a)\\1",
        "x" * (LENGTH_MAX + 1), "a*" * 9, "(" * 500 + ")" * 500,
    ],
)  # fmt: skip
def test_what_is_no_expression_or_may_take_for_ever_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        compile_pattern(text)
