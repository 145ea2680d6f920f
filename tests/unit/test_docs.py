"""The documentation hangs together: its index lists every page, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *DOCS.glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.S | re.M)
READERS = ("Try it", "Test with it", "Run it", "Build on it")


def links(page: Path) -> list[str]:
    """Those to files and headings of ours."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    return [link for link in LINK.findall(text) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ +(.*)$", CODE.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, heading = link.partition("#")
        target = Path(os.path.normpath(page.parent / path)) if path else page
        if not target.exists() or (heading and heading not in anchors(target)):
            dead.append(link)
    assert not dead, f"{name_of(page)}: {dead}"


def test_the_index_has_a_part_for_each_reader_and_lists_every_page() -> None:
    headings = re.findall(r"^## (.*)$", INDEX.read_text(encoding="utf-8"), re.M)
    assert headings[: len(READERS)] == list(READERS)
    listed = {link.partition("#")[0] for link in links(INDEX)}
    pages = {path.name for path in DOCS.glob("*.md")} - {INDEX.name}
    assert pages <= listed, f"not in the index: {sorted(pages - listed)}"


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in links(ROOT / "README.md")


def test_every_picture_belongs_to_a_page() -> None:
    shown = {link.rpartition("/")[2] for page in PAGES for link in links(page)}
    done = subprocess.run(
        ["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    pictures = {Path(line).name for line in done.stdout.split() if line.endswith((".png", ".svg"))}
    assert pictures <= shown, f"nobody shows {sorted(pictures - shown)}"


def test_nobody_is_told_to_install_by_a_name_that_is_anyones_to_take() -> None:
    """Moldau is not on PyPI: what works is `pip install .` in a clone."""
    texts = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    told = re.compile(r"pip install [^`\n]*\bmoldau\b(?!/)")
    assert [name_of(text) for text in texts if told.search(text.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_what_make_test_leaves_out_is_said(page: str) -> None:
    (said,) = re.findall(r"^make test +# (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert "make test-long" in said and "make test-spark" in said
