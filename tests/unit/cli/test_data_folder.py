"""Data folders that are made, accepted or refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moldau.cli.data_folder import (
    only_broker,
    prepare_folder,
    read_pid,
    refuse_foreign_broker,
    refuse_foreign_cluster,
)
from moldau.cli.errors import CliError, Exit


def test_a_missing_folder_is_made_with_its_parents_and_left_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    prepare_folder(str(folder), "--data")
    assert list(folder.iterdir()) == []


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CliError, match="is not a folder") as error:
            prepare_folder(str(path), "--data")
        assert error.value.code is Exit.CANNOT_START


def test_a_folder_that_cannot_be_written_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests often run as root, whom permissions do not stop: the refusal comes from a file system that is read-only.
    def refuse(**_options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(CliError) as error:
        prepare_folder(str(tmp_path), "--data")
    assert error.value.message == f"The data folder {tmp_path} cannot be written: read-only file system."
    assert "--data" in error.value.hint


def test_a_folder_of_somebody_else_is_refused_and_named_files_show_why(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    for refuse in (refuse_foreign_cluster, refuse_foreign_broker):
        with pytest.raises(CliError, match=r"thesis\.tex") as error:
            refuse(str(tmp_path), "--data")
        assert error.value.code is Exit.CANNOT_START


def test_new_empty_and_own_folders_are_accepted(tmp_path: Path) -> None:
    refuse_foreign_cluster(str(tmp_path / "new"), "--data")
    refuse_foreign_broker(str(tmp_path / "new"), "log.dirs")
    (tmp_path / "lost+found").mkdir()
    refuse_foreign_cluster(str(tmp_path), "--data")
    refuse_foreign_broker(str(tmp_path), "log.dirs")
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "notes.txt").write_text("")
    refuse_foreign_cluster(str(tmp_path), "--data")
    (tmp_path / "broker-1" / "meta.properties").write_text("")
    (tmp_path / "broker-1" / "orders-0").mkdir()
    refuse_foreign_broker(str(tmp_path / "broker-1"), "log.dirs")


def test_the_one_broker_that_is_there_keeps_its_id(tmp_path: Path) -> None:
    assert only_broker(str(tmp_path), default=1) == 1
    (tmp_path / "broker-0").mkdir()
    assert only_broker(str(tmp_path), default=1) == 0
    (tmp_path / "broker-2").mkdir()
    assert only_broker(str(tmp_path), default=1) == 1


def test_a_pid_is_read_only_while_its_process_lives(tmp_path: Path) -> None:
    assert read_pid(str(tmp_path)) is None
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    assert read_pid(str(tmp_path)) == os.getpid()
    (tmp_path / "pid").write_text("999999999\n")
    assert read_pid(str(tmp_path)) is None
    (tmp_path / "pid").write_text("rubbish")
    assert read_pid(str(tmp_path)) is None
