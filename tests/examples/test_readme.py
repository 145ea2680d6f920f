"""What examples/README.md shows is there: every command works, and stands in the head of its example as well."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cluster.test_cli_readme import parse
from examples.stage import EXAMPLES

README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def commands(text: str, program: str) -> list[str]:
    """The lines that begin with this program, without their comments."""
    return re.findall(rf"^ *({program} .*?)(?: +#.*)?$", text, re.M)


@pytest.mark.parametrize("line", commands(README, "moldau"))
def test_every_command_of_the_readme_is_one_that_moldau_takes(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("line", commands(README, "python"))
def test_an_example_is_run_as_its_head_says(line: str) -> None:
    head = ast.get_docstring(ast.parse((EXAMPLES.parent / line.split()[1]).read_text(encoding="utf-8")))
    assert line in commands(head or "", "python")


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_an_example_goes_where_the_command_line_goes(path: Path) -> None:
    for taken in re.findall(r"environ(?:\.get\(|\[)\"(\w*BOOTSTRAP\w*)", path.read_text(encoding="utf-8")):
        assert taken == "MOLDAU_BOOTSTRAP"


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_shows_every_example_and_says_what_it_guarantees(name: str) -> None:
    assert f"| [{name}]({name}) |" in README
    assert any(f"examples/{name}" in line for line in commands(README, "python"))
