"""What docs/testing.md shows is what works: each section is a project of its own, whose blocks are run as they stand,
and its tables say what is so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.shown import BLOCK, Page, parse
from moldau.testing import plugin
from moldau.testing.cluster import Cluster, defaults

PAGE = Page("docs/testing.md")
SECTIONS = {
    title: section
    for title, section in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.text, re.S | re.M)
    if BLOCK.search(section)
}
FILE_NAME = re.compile(r"# (\w+\.py)\n")
TIMEOUT_S = 120


def run(folder: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_block_belongs_to_a_section_that_is_run() -> None:
    shown = [block for section in SECTIONS.values() for block in BLOCK.findall(section)]
    assert shown == PAGE.blocks
    assert {kind for kind, _ in shown} == {"python", ""}
    assert len(SECTIONS) >= 8


@pytest.mark.parametrize("title", SECTIONS)
def test_the_blocks_of_a_section_do_what_it_says(title: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    scripts, lines, tests = [], [], 0
    for kind, block in BLOCK.findall(SECTIONS[title]):
        if not kind:
            lines += block.splitlines()
        elif name := FILE_NAME.match(block):
            assert not (tmp_path / name[1]).exists(), f"{name[1]} is there twice"
            (tmp_path / name[1]).write_text(block)
            tests += len(re.findall(r"^def test_", block, re.M))
        else:
            scripts.append(block)
    for script in scripts:
        run(tmp_path, sys.executable, "-c", script)
    for line in lines or ["pytest"] * bool(tests):
        said = run(tmp_path, "sh", "-c", line)
        (passed,) = re.findall(r"(\d+) passed", said)
        assert int(passed) >= tests
        assert not re.search(r"\d+ (skipped|warning)", said), said


@pytest.mark.parametrize("line", sorted(set(PAGE.commands())))
def test_every_command_of_the_page_is_one_that_moldau_takes(line: str) -> None:
    parse(line)


def test_the_page_says_what_the_cluster_sets() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (-?\d+) \|", PAGE.text, re.M))
    in_words = r"listeners|.*replication\.factor|.*min\.i.*"
    assert rows == {name: value for name, value in defaults(1).items() if not re.fullmatch(in_words, name)}


def test_the_page_says_what_the_fixtures_and_the_cluster_are() -> None:
    fixtures = {name for name in vars(plugin) if name.startswith("moldau_")}
    assert set(re.findall(r"^\| `(moldau_\w+)` \| (?:session|test) \|", PAGE.text, re.M)) == fixtures
    members = {name for name in dir(Cluster) if not name.startswith("_")} - {"is_foreign"}
    table = SECTIONS["Cluster"]
    assert {name for name in members if not re.search(rf"`{name}\b", table)} == set()
