"""Requirements and promises are cited by their ids, and docs/requirements.md says what each of them is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moldau.sim.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "requirements.md"
ROW = re.compile(r"^- \*\*(?:promise )?([LPCRGSO]?\d)\*\* ", re.MULTILINE)
KNOWN = ROW.findall(PAGE.read_text())
FILES = [
    path
    for part in ("src", "tests", "bench", "examples")
    for path in sorted((ROOT / part).rglob("*.py"))
    if path != Path(__file__)
]
CITATION = re.compile(r"\b([LPCRGSO]\d)(?:-([LPCRGSO]\d))?(?=[.,;:)\s])")
"""Requirements are cited in heads and docstrings, between or behind words."""
PROMISE = re.compile(r"\bpromises? (\d(?:(?:, | and )\d)*)", re.IGNORECASE)
DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def cited(text: str) -> set[str]:
    found = set()
    for docstring in DOCSTRING.findall(text):
        for first, last in CITATION.findall(docstring):
            numbers = range(int(first[1:]), int((last or first)[1:]) + 1)
            found.update(f"{first[0]}{number}" for number in numbers)
        for numbers_of in PROMISE.findall(docstring):
            found.update(re.findall(r"\d", numbers_of))
    return found


def test_citations_are_found() -> None:
    head = '"""What it does. R2, L5; promises 1, 2 and 6 (R5-R8)."""'
    assert cited(head) == {"R2", "L5", "R5", "R6", "R7", "R8", "1", "2", "6"}


def test_every_requirement_stands_there_once() -> None:
    assert len(KNOWN) == len(set(KNOWN)) and {"1", "8", "L1", "O5"} <= set(KNOWN)


@pytest.mark.parametrize("path", [path for path in FILES if cited(path.read_text())], ids=name_of)
def test_what_is_cited_stands_in_the_page(path: Path) -> None:
    assert cited(path.read_text()) <= set(KNOWN)


def test_every_planted_bug_breaks_a_promise_that_stands_in_the_page() -> None:
    broken = {str(plant.promise) for workload in WORKLOADS.values() for plant in workload.plants.values()}
    assert broken and broken <= set(KNOWN)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE.read_text()))))
def test_the_tests_that_the_page_names_are_there(name: str) -> None:
    assert (ROOT / name).is_file()


def test_nothing_cites_pages_that_are_not_in_the_project() -> None:
    citing = [
        name_of(path) for path in FILES if re.search(r"\b(DESIGN|SPEC|STYLE)('s|\.md| R\d)", path.read_text())
    ]
    assert citing == []
