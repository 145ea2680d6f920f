"""How a broker's settings are put together, and how its process ends."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from moldau.cli.errors import CliError, Exit
from moldau.cli.launch import (
    Launch,
    configured_store,
    explain_start,
    read_config,
    stop_or_leave,
    store_url,
)
from moldau.config.broker import BrokerConfig
from moldau.config.describe import describe_broker

DEFAULTS = {"node.id": "1", "num.partitions": "2"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MOLDAU_"):
            monkeypatch.delenv(name)


def test_options_win_over_variables_over_the_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("num.partitions = 3\n")

    def partitions(path: str | None, options: dict[str, str]) -> int:
        count: int = read_config(DEFAULTS, path, options).config["num.partitions"]
        return count

    assert partitions(None, {}) == 2
    assert partitions(str(file), {}) == 3
    monkeypatch.setenv("MOLDAU_NUM_PARTITIONS", "4")
    assert partitions(str(file), {}) == 4
    assert partitions(str(file), {"num.partitions": "5"}) == 5


def test_variables_of_the_command_line_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOLDAU_BOOTSTRAP", "MOLDAU_DEBUG", "MOLDAU_FALLBACKS"):
        monkeypatch.setenv(name, "1")
    read_config(DEFAULTS, None, {})
    monkeypatch.setenv("MOLDAU_NUM_PARTITION", "4")
    with pytest.raises(CliError, match="MOLDAU_NUM_PARTITION ") as error:
        read_config(DEFAULTS, None, {})
    assert error.value.code is Exit.USAGE


def test_what_others_have_named_is_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "num.partitions=3\nzookeeper.connect=localhost:2181\nconfluent.support.metrics.enable=true\n"
    )
    monkeypatch.setenv("MOLDAU_PORT", "tcp://10.96.0.7:9092")
    monkeypatch.setenv("MOLDAU_SERVICE_HOST", "10.96.0.7")
    monkeypatch.setenv("MOLDAU_IMAGE_TAG", "1")
    config, remarks = read_config(DEFAULTS, str(file), {})
    assert config["num.partitions"] == 3
    assert remarks == (
        f"left out of {file}, being no keys of Moldau's: zookeeper.connect, confluent.support.metrics.enable",
        "these variables name no configuration key, and have no effect: MOLDAU_IMAGE_TAG",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("server.properties", "log.retention.hour=24\n"),  # nearly ours
        ("broker.toml", 'zookeeper.connect = "localhost:2181"\n'),  # Kafka writes no TOML
    ],
)
def test_what_nobody_else_can_have_named_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CliError, match="Unknown broker key") as error:
        read_config(DEFAULTS, str(tmp_path / name), {})
    assert error.value.code is Exit.USAGE
    with pytest.raises(CliError, match="Unknown broker key"):
        read_config(DEFAULTS, None, {"zookeeper.connect": "localhost:2181"})


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="is a folder") as error:
        read_config({}, str(tmp_path), {})
    assert error.value.code is Exit.USAGE
    (tmp_path / "image.properties").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CliError, match="not a text file"):
        read_config({}, str(tmp_path / "image.properties"), {})


def test_the_store_of_a_configuration_may_have_a_password_and_is_never_shown() -> None:
    url = "zookeeper:moldau:s3cret@localhost:2181/chroot?tls=true&key-password=k3y"
    config = BrokerConfig.parse({"log.dirs": "/x", "moldau.store": url})
    assert configured_store(config) == url
    (entry,) = (entry for entry in describe_broker(config) if entry.name == "moldau.store")
    assert entry.is_sensitive and "s3cret" not in repr(entry) and "k3y" not in repr(entry)
    assert "s3cret" not in repr(config["moldau.store"])
    assert configured_store(BrokerConfig.parse({"log.dirs": "/x"})) == ""


def test_a_store_is_a_file_or_an_ensemble() -> None:
    assert store_url("", "default") == "sqlite:default"
    for url in ("sqlite:some/file", "zookeeper:localhost:2181", "zookeeper:a:2181,b:2181/chroot/deep"):
        assert store_url(url, "default") == url
    for url in ("sqlite:", "file", "zookeeper:", "zookeeper:a:x", "etcd:a:1"):
        with pytest.raises(CliError) as error:
            store_url(url, "default")
        assert error.value.code is Exit.USAGE and ":PORT" in error.value.message + error.value.hint


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), "The port is in use"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign"), "no such address"),
        (
            OSError(errno.EHOSTUNREACH, "the host name 'h' has no address"),
            "The host name 'h' has no address (",
        ),
        (PermissionError(errno.EACCES, "Permission denied"), "may not listen there"),
        (
            OSError(errno.ENOSPC, "No space left on device", "some/file"),
            "No space left on device (some/file)",
        ),
    ],
)
def test_what_stops_a_start_is_one_sentence_with_what_to_do(error: OSError, said: str) -> None:
    explained = explain_start(error, Launch(read_config(DEFAULTS, None, {}).config, "store"))
    assert said in explained.message and explained.hint
    assert explained.code is Exit.CANNOT_START


def test_the_address_that_failed_is_the_one_that_is_named() -> None:
    listeners = {"listeners": "A://:1,B://:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    launch = Launch(read_config(DEFAULTS, None, listeners | {"moldau.http.port": "3"}).config, "store")
    in_use = OSError(errno.EADDRINUSE, "Address already in use")
    assert "(A://:1)" in explain_start(in_use, launch).message
    assert "(B://:2)" in explain_start(in_use, launch, ["A"]).message
    http = explain_start(in_use, launch, ["A", "B"])
    assert "(http://127.0.0.1:3)" in http.message and "moldau.http.port" in http.hint


def test_the_first_signal_stops_and_the_second_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    stopping = asyncio.Event()
    stop_or_leave(stopping)
    assert stopping.is_set() and not left
    stop_or_leave(stopping)
    assert left == [Exit.INTERRUPTED]
