"""A server process is started, measured and ended by its pid, and never outlives its owner."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.server import Server, StartFailed
from moldau.runtime.real.free_ports import PORTS, free_port

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="It reads /proc.")


class Script(Server):
    """A shell script in the place of a broker; ready when it has printed `ready`."""

    name = "script"
    text = "echo ready; exec sleep 60"
    clean_exit_code = -15  # sleep ends by the signal itself

    def command(self) -> Sequence[str]:
        return ["sh", "-c", self.text]

    def is_ready(self) -> bool:
        return b"ready" in (self.folder / "stdout.txt").read_bytes()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_runs_inside_the_with_block_only(tmp_path: Path) -> None:
    with Script(tmp_path) as server:
        pid = server.pid
        assert is_running(pid)
    assert not is_running(pid)


def test_a_process_that_ends_early_is_a_failed_start_with_its_words(tmp_path: Path) -> None:
    server = Script(tmp_path)
    server.text = "echo 'no space left' >&2; exit 3"
    with pytest.raises(StartFailed, match="no space left"):
        server.start()


def test_a_process_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    server = Script(tmp_path)
    server.text = "exec sleep 60"
    with pytest.raises(StartFailed, match=r"did not serve clients within 0\.2 s"):
        server.start(timeout_s=0.2)
    assert server.ended()


def test_a_process_that_ignores_sigterm_is_killed_and_not_called_clean(tmp_path: Path) -> None:
    server = Script(tmp_path)
    server.text = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    server.start()
    pid = server.pid
    assert server.stop(timeout_s=0.3) is False
    assert not is_running(pid)


def test_a_server_that_is_left_running_ends_with_its_owner(tmp_path: Path) -> None:
    owner = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from bench.server import Server
        class Script(Server):
            name = "script"
            def command(self): return ["sleep", "60"]
            def is_ready(self): return True
        print(Script(Path(sys.argv[1])).start().pid)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", owner, str(tmp_path)], capture_output=True, text=True, timeout=30, check=True
    )
    assert not is_running(int(done.stdout))


def test_usage_counts_the_cpu_of_children_that_run_and_that_ended(tmp_path: Path) -> None:
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.2: pass'"
    server = Script(tmp_path)
    server.text = f"{burn}; echo ready; {burn}; exec sleep 60"
    with server:
        assert server.usage().cpu_s >= 0.19
        assert server.usage().rss_bytes > 100_000
        deadline = time.monotonic() + 20
        while server.usage().cpu_s < 0.38:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_free_ports_lie_below_the_ephemeral_ones() -> None:
    assert all(free_port() in PORTS for _ in range(20))
