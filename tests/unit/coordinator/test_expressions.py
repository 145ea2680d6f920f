"""RE2's expressions: what they match, what they are refused for (in RE2/J's words), and that none takes long."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.limits import (
    EXPRESSION_LETTERS_MAX,
    EXPRESSION_NAMED_GROUPS_MAX,
    EXPRESSION_REPETITIONS_MAX,
    EXPRESSION_UNICODE_CLASSES_MAX,
    EXPRESSIONS_KEPT_MAX,
)
from moldau.coordinator.expressions import BadExpression, Expression, expression


@pytest.mark.parametrize(
    ("source", "fits", "does_not"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("orders-.*", ["orders-", "orders-eu"], ["orders", "xorders-eu"]),
        ("^orders$", ["orders"], ["orders2"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("(?:eu|us)-(orders|users)", ["eu-orders", "us-users"], ["eu", "uk-orders"]),
        ("a+b*c?", ["a", "aab", "abbc"], ["b", "acc"]),
        ("a{2}b{1,2}c{1,}", ["aabc", "aabbccc"], ["abc", "aabbbc", "aab"]),
        ("a{x}", ["a{x}"], ["a"]),
        ("[a-c_.-]+", ["a.b-c_"], ["d", ""]),
        ("[^a-c]", ["d"], ["a", ""]),
        ("[]a]", ["]", "a"], ["["]),
        ("[[:alpha:]]+[[:^digit:]]", ["abc"], ["ab1"]),
        (r"\d+\.\w\S", ["12.ab"], ["12xab", "1.a "]),
        (r"[\d\-]+", ["1-2"], ["a"]),
        (r"\Qa.b*\E+", ["a.b*"], ["aab", "a.b"]),
        (r"\x61\x{62}", ["ab"], ["a"]),
        (r"(?i)Orders", ["ORDERS", "orders"], ["order"]),
        (r"(?i:A)b", ["ab", "Ab"], ["aB"]),
        (r"(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        (r"a\b.*|\Bx", ["a-b", "a"], ["ab", "x"]),
        (r"\pL\p{Lu}\PL", ["aB1"], ["ab1"]),
        ("(a*)*b", ["aaab", "b"], ["aaa"]),
        ("(a|b)*?c", ["ababc"], ["abab"]),
        (r"\Aab\z", ["ab"], ["abb"]),
        (r"\Qab\E+", ["ab", "abb"], ["abab"]),
        (r"a(?i)+b", ["aab", "aB"], ["A", "AB"]),
        (r"\101\x{62}\0?", ["Ab"], ["ab"]),
        (r"\p{Latin}+\p{Common}\P{Greek}", ["ab-c"], ["ab", "1-c"]),
        (r"\p{Pd}\p{^L}\p{Nd}\pP", ["-12."], ["-a2.", "_12."]),
        ("[[:a]", ["[", ":", "a"], ["b"]),
        (r"\\C\Q\C\E", ["\\C\\C"], ["\\C"]),
        (r"(?i)[^a][^[:^lower:]]\P{Lu}", ["bC1"], ["ac1", "Ac1", "bCd", "b11"]),
    ],
)
def test_an_expression_matches_whole_texts(source: str, fits: list[str], does_not: list[str]) -> None:
    expression = Expression(source)
    assert [text for text in fits if not expression.matches(text)] == []
    assert [text for text in does_not if expression.matches(text)] == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("[", "missing closing ]"),
        ("(", "missing closing )"),
        ("(?i", "invalid or unsupported Perl syntax"),
        ("(?-)a", "invalid or unsupported Perl syntax"),
        ("(?i-)a", "invalid or unsupported Perl syntax"),
        ("(?--i)a", "invalid or unsupported Perl syntax"),
        (")", "unexpected )"),
        ("*", "missing argument to repetition operator"),
        ("{2}a", "missing argument to repetition operator"),
        ("a|{1,}", "missing argument to repetition operator"),
        ("({2})", "missing argument to repetition operator"),
        ("{2,1}", "invalid repeat count"),
        ("(?i)*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("((a{100}){100}){100}", "invalid repeat count"),
        ("\\", "trailing backslash at end of expression"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("[b-a]", "invalid character class range"),
        ("[[:nothing:]]", "invalid character class range"),
        (r"\p{Nothing}", "invalid character class range"),
        (r"\p", "invalid character class range"),
        ("(?P<a-b>x)", "invalid named capture"),
        ("(?P<a>x)(?<a>y)", "duplicate capture group name"),
        (r"a\Cb", "invalid escape sequence"),
        (r"\Qa\E\\\C", "invalid escape sequence"),
        ("a" * (EXPRESSION_LETTERS_MAX + 1), "expression too large"),
        ("a?" * (EXPRESSION_REPETITIONS_MAX + 1), "expression too large"),
        ("a{0,500}" * 3, "expression too large"),
        (r"\pL" * (EXPRESSION_UNICODE_CLASSES_MAX + 1), "expression too large"),
        ("(?:(?:[^a]{9}){9}){9}" * 30, "expression too large"),
        ("".join(f"(?<n{one}>a)" for one in range(EXPRESSION_NAMED_GROUPS_MAX + 1)), "expression too large"),
        ("(" * 5_000, "missing closing )"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_reason(source: str, reason: str) -> None:
    with pytest.raises(BadExpression, match=re.escape(reason)):
        Expression(source)


def test_an_expression_that_others_take_for_ever_over_is_matched_as_fast_as_any() -> None:
    assert not Expression("(a+)+(a|aa)*$").matches("a" * 2_000 + "!")


def test_so_many_expressions_are_kept_and_no_more() -> None:
    expression.cache_clear()
    kept = expression("kept")
    for number in range(EXPRESSIONS_KEPT_MAX - 1):
        expression(f"other-{number}")
    assert expression("kept") is kept
    for number in range(EXPRESSIONS_KEPT_MAX):
        expression(f"further-{number}")
    assert expression("kept") is not kept


def test_an_expression_that_was_compiled_is_kept_by_nobody_else() -> None:
    Expression("nobody keeps this")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_a_deep_expression_does_not_end_the_process() -> None:
    assert Expression("(?:" * 2_000 + "a" + ")" * 2_000).matches("a")


def test_a_long_list_of_names_is_an_expression() -> None:
    names = [f"team-{number}.orders.v1" for number in range(400)]
    expression = Expression("|".join(names))
    assert all(map(expression.matches, names))
    assert not expression.matches("team-400.orders.v1")


def test_counts_that_multiply_are_bounded() -> None:
    with pytest.raises(BadExpression):
        Expression("(" * 3 + "a" + "{90})" * 3)


sources = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        inner.map(lambda one: f"(?:{one})*"),
        inner.map(lambda one: f"(?:{one})?"),
        inner.map(lambda one: f"(?:{one}){{1,2}}"),
    ),
    max_leaves=6,
)


@given(sources, st.text("abc", max_size=6))
def test_it_agrees_with_pythons_engine_where_both_know_the_syntax(source: str, text: str) -> None:
    expected = re.fullmatch(source.replace("$", r"\Z"), text) is not None
    assert Expression(source).matches(text) == expected
