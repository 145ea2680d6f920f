"""`make pythons` finds interpreters that work, and says which versions it did not find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pythons

HERE = "{}.{}".format(*sys.version_info)


@pytest.fixture(autouse=True)
def nothing_else_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("CI", raising=False)


def program(place: Path, script: str) -> Path:
    place.parent.mkdir(parents=True)
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o755)
    return place


def test_a_shim_that_leads_nowhere_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "PATH" / f"python{HERE}", "exit 127")
    theirs = tmp_path / "PYENV_ROOT" / "versions" / f"{HERE}.99" / "bin" / f"python{HERE}"
    program(theirs, f'exec {sys.executable} "$@"')
    found = pythons.find(HERE)
    assert found is not None
    assert found[0] == str(theirs)
    assert found[1].startswith(f"{HERE}.")


def test_an_interpreter_of_another_version_is_not_taken(tmp_path: Path) -> None:
    program(tmp_path / "PATH" / "python3.99", f'exec {sys.executable} "$@"')
    assert pythons.find("3.99") is None


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_version_that_is_not_there_is_said_so_and_fails_in_ci(
    ci: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    assert pythons.main(["3.98", "3.99", "--", "tests"]) == code
    assert capsys.readouterr().out.splitlines() == [
        "3.98  not on this machine: NOT TESTED",
        "3.99  not on this machine: NOT TESTED",
    ]
