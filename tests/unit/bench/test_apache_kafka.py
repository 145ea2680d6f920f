"""Where Apache Kafka cannot be run, the helper says why in a sentence; the jars appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import apache_kafka
from bench.apache_kafka import distribution
from moldau.runtime.real.java import Unavailable
from needs import missing

MAVEN_THAT_COPIES = """
for word in "$@"; do case "$word" in -DoutputDirectory=*) folder=${word#*=};; esac; done
mkdir -p "$folder" && touch "$folder/kafka.jar"
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder that is all of PATH but the shell's own, with an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for needed in ("mkdir", "touch", "sh"):
        (programs / needed).symlink_to(f"/bin/{needed}")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("MOLDAU_KAFKA_CACHE", str(tmp_path / "cache"))
    distribution.cache_clear()
    yield programs
    distribution.cache_clear()


def install(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def install_java(programs: Path, version: str) -> None:
    install(programs, "java", f"echo 'openjdk version \"{version}\"' >&2")


def test_says_that_there_is_no_java(machine: Path) -> None:
    with pytest.raises(Unavailable, match="needs Java 17 or newer, and there is no `java` here"):
        distribution()


def test_says_that_java_is_too_old(machine: Path) -> None:
    install_java(machine, "11.0.2")
    with pytest.raises(Unavailable, match=r'needs Java 17 or newer; .* says openjdk version "11.0.2"'):
        distribution()


def test_says_that_there_is_no_maven(machine: Path) -> None:
    install_java(machine, "21")
    with pytest.raises(Unavailable, match=r"jars are not in .*cache, and there is no `mvn` here"):
        distribution()


def test_says_why_maven_failed_and_leaves_nothing_behind(machine: Path, tmp_path: Path) -> None:
    install_java(machine, "17.0.1")
    install(machine, "mvn", MAVEN_THAT_COPIES + "echo '[ERROR] no route to host'; exit 1")
    with pytest.raises(Unavailable, match="no route to host"):
        distribution()
    assert list((tmp_path / "cache" / apache_kafka.VERSION).iterdir()) == []


def test_fetches_the_jars_once(machine: Path, tmp_path: Path) -> None:
    install_java(machine, "17.0.1")
    install(machine, "mvn", MAVEN_THAT_COPIES)
    found = distribution()
    assert [jar.name for jar in found.jars.iterdir()] == ["kafka.jar"]
    (machine / "mvn").unlink()
    distribution.cache_clear()
    assert distribution() == found


def test_a_missing_tool_skips_a_test_but_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no kcat"):
        missing("no kcat")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no kcat"):
        missing("no kcat")
