"""RE2's expressions: what they match, what they are refused for, and that none takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator import re2_states
from moldau.coordinator.re2 import BadExpression, Expression


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
        ("{?", "invalid nested repetition operator"),
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
        ("a" * 10_001, "expression too large"),
        ("(" * 5_000, "expression nests too deeply"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_reason(source: str, reason: str) -> None:
    with pytest.raises(BadExpression, match=re.escape(reason)):
        Expression(source)


def test_an_expression_that_others_take_for_ever_over_is_matched_as_fast_as_any() -> None:
    assert not Expression("(a+)+(a|aa)*$").matches("a" * 2_000 + "!")


def test_what_is_kept_of_an_expression_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{one}{two}{three}" for one in "abc" for two in "abc-" for three in "ab\n"]
    source = r"(?m)(a|b\b.)?.*(b|-\B.|$.)"
    expected = [Expression(source).matches(text) for text in texts]
    assert True in expected and False in expected
    monkeypatch.setattr(re2_states, "KEPT_MAX", 10)
    often = Expression(source)
    assert [often.matches(text) for text in texts] == expected


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
