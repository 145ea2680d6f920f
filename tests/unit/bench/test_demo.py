"""The demo without its processes: what it asks for before it starts anything, counts, draws and prints."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest

from bench import setup
from bench.demo.__main__ import main
from bench.demo.facts import Facts, Rate
from bench.demo.parts import Failed, Part
from bench.demo.view import drawing, line, picture

FLOW = {
    "flow": "page_views",
    "target": "page_views",
    "kind": "streaming table",
    "state": "running",
    "rows": 1200,
    "rows_per_s": 50.0,
    "lag": 7,
    "batches": 3,
    "batch_ms": 400,
    "state_rows": 0,
    "state_bytes": 0,
    "restarts": 0,
}


def some_facts() -> Facts:
    return Facts(
        brokers=3,
        records={"page-views": 1300, "page-views-per-minute": 90},
        rates={"page-views": 50.2, "page-views-per-minute": 0.0},
        flows=[FLOW],
        pages=[("/", 400), ("/search", 300), ("/cart", 10)],
        minutes=[(datetime(2026, 11, 7, 12, minute, tzinfo=UTC), 10 * minute) for minute in range(1, 5)],
        sessions=20,
        views_in_sessions=100,
        seconds_in_sessions=6000.0,
    )


def test_without_java_it_says_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main([]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and "apt-get install openjdk-17-jre-headless" in printed.err


def test_the_set_up_installs_java_alone_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    asked: list[list[str]] = []
    monkeypatch.setattr(setup, "install", asked.append)
    setup.main(["java"])
    assert asked == [["openjdk-17-jre-headless"]]


@pytest.mark.parametrize(
    ("argument", "code", "said"),
    [
        ("--help", 0, "usage: python -m bench.setup"),
        ("kcatt", 2, "there is no package for kcatt: choose from kcat"),
    ],
)
def test_the_set_up_says_how_it_is_used(argument: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.setup", argument],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert said in done.stdout + done.stderr and "Traceback" not in done.stderr


APT_GET = """#!/bin/sh
echo "$@" >> {folder}/asked
if [ "$1" = install ]; then
    echo '#!/bin/sh' > {folder}/java
    echo "echo 'openjdk version \\"17.0.1\\"' >&2" >> {folder}/java
    /bin/chmod +x {folder}/java
fi
"""


@pytest.fixture
def debian_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is all of the PATH, with an apt-get that installs there."""
    command = tmp_path / "apt-get"
    command.write_text(APT_GET.format(folder=tmp_path))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_for_root_the_set_up_installs_java_from_debian(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debian_without_java: Path
) -> None:
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
    setup.main(["java"])
    asked = (debian_without_java / "asked").read_text().splitlines()
    assert asked == ["update -qq", "install -y -qq openjdk-17-jre-headless"]
    assert capsys.readouterr().err == "installing openjdk-17-jre-headless\n"
    assert setup.is_there("java")


def test_for_anybody_else_the_set_up_asks_for_nothing_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debian_without_java: Path
) -> None:
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    setup.main(["java"])
    assert not (debian_without_java / "asked").exists()
    said = "not installed: openjdk-17-jre-headless: only root can install packages\n"
    assert capsys.readouterr().err == said


def test_a_java_that_is_too_old_counts_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert setup.missing_packages(["java"]) == ["openjdk-17-jre-headless"]


def test_a_rate_is_counted_over_the_last_ten_seconds() -> None:
    rate = Rate()
    assert rate.of(0.0, 1_000_000) == 0.0
    assert [rate.of(float(second), 1_000_000 + 50 * second) for second in (1, 2)] == [50.0, 50.0]
    assert rate.of(100.0, 2_000_000) == 0.0, "nothing else was seen within ten seconds"


def test_a_line_has_rates_lag_sessions_and_top_pages() -> None:
    assert line(some_facts()) == (
        "3 brokers, page-views 1,300 (50/s), page-views-per-minute 90 (0/s), 1 of 1 flow running, lag 7, "
        "sessions 20, top pages / 400 /search 300 /cart 10"
    )
    assert line(Facts(brokers=3)) == "3 brokers, Spark is starting"


def test_the_picture_has_what_is_drawn_and_fetches_nothing() -> None:
    svg = picture(drawing(some_facts(), "title", "footer"))
    for text in ("/search", "page_views", "1,300", "views&#160;each", "12:04"):
        assert text in svg
    assert "font-face" not in svg and "cdn" not in svg


def test_a_part_that_cannot_start_says_why(tmp_path: Path) -> None:
    part = Part("brokers", [sys.executable, "-c", "import sys; sys.exit('no room')"], tmp_path)
    with pytest.raises(Failed, match=r"brokers ended with exit code 1[\s\S]*no room"):
        part.first_line(Event())
    part.kill()


def test_a_part_that_does_not_end_is_killed(tmp_path: Path) -> None:
    ignores = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    stubborn = f"import signal, time; {ignores}; print('up', flush=True); time.sleep(600)"
    part = Part("brokers", [sys.executable, "-c", stubborn], tmp_path)
    assert part.first_line(Event()) == "up\n"
    at_once = Event()
    at_once.set()
    part.stop(at_once)
    with pytest.raises(Failed, match="exit code -9"):
        part.has_ended()
