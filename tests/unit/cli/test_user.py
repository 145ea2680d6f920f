"""`moldau user` on the store of a cluster that does not run: passwords come from a file, and are kept salted."""

from __future__ import annotations

import io
import json
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from moldau.cli.app import run

PASSWORD = "an awful secret"


def moldau(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(["user", *arguments])
    return int(ended.value.code or 0)


def create(folder: Path, name: str, *more: str, password: str = PASSWORD) -> int:
    file = folder / "password.txt"
    file.write_text(f"{password}\n")
    return moldau("create", name, "--data", str(folder / "data"), "--password-file", str(file), *more)


def users(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    capsys.readouterr()
    assert moldau("list", "--data", str(folder / "data"), "--json") == 0
    return {one["user"]: one["mechanisms"] for one in json.loads(capsys.readouterr().out)}


def test_users_are_made_before_the_first_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert create(tmp_path, "alice") == 0
    assert create(tmp_path, "bob", "--mechanism", "scram-sha-512") == 0
    assert users(tmp_path, capsys) == {
        "alice": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "bob": ["SCRAM-SHA-512"],
    }
    assert moldau("delete", "alice", "-m", "SCRAM-SHA-256", "--data", str(tmp_path / "data")) == 0
    assert moldau("delete", "bob", "--data", str(tmp_path / "data")) == 0
    assert users(tmp_path, capsys) == {"alice": ["SCRAM-SHA-512"]}


def test_nobody_else_can_read_the_folder_that_is_made_for_them(tmp_path: Path) -> None:
    assert create(tmp_path, "alice") == 0
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    kept = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("cluster*") if path.is_file())
    assert b"SCRAM-SHA-512" in kept and PASSWORD.encode() not in kept


def test_who_is_not_there_cannot_be_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert create(tmp_path, "alice") == 0
    assert moldau("delete", "carol", "--data", str(tmp_path / "data")) == 4
    assert "There is no such user 'carol'." in capsys.readouterr().err


def test_a_store_that_is_not_there_is_not_made_by_looking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moldau("list", "--data", str(tmp_path / "data")) == 1
    assert "There is no cluster store" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_password_comes_from_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(b"secret\r\nmore"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert moldau("create", "alice", "--data", str(tmp_path / "data"), "--password-file", "-") == 0


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "The password is empty."),
        (b"\nsecond line", "The password is empty."),
        (b"\xff\xfe\n", "not text in UTF-8"),
        (b"x" * 5000, "more than 4096 bytes"),
    ],
)
def test_a_password_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, what: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    data = str(tmp_path / "data")
    assert moldau("create", "alice", "--data", data, "--password-file", str(file)) == 2
    assert what in capsys.readouterr().err


def test_without_a_terminal_nobody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert moldau("create", "alice", "--data", str(tmp_path / "data")) == 2
    assert "There is no terminal" in capsys.readouterr().err


def test_a_password_is_no_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert moldau("create", "alice", PASSWORD, "--data", str(tmp_path / "data")) == 2
    assert moldau("create", "alice", "--password", PASSWORD, "--data", str(tmp_path / "data")) == 2


def test_two_stores_are_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert create(tmp_path, "alice", "--store", "sqlite:/x") == 2
    assert moldau("list", "--store", "nonsense") == 2


@pytest.mark.parametrize("name", ["", "a\0b"[:2] + "b" * 1000])
def test_a_name_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert create(tmp_path, name) == 1
