"""The website-activity pipeline as its page says: generated, run until it has caught up, checked in plain Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.bench.server import Server

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "website_activity"
TIMEOUT_S = 280


@pytest.mark.timeout(900)
def test_its_results_are_those_of_plain_python(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    project = shutil.copytree(EXAMPLE, tmp_path / "project")
    with new_server() as server:
        environment = {**os.environ, "MOLDAU_BOOTSTRAP": server.bootstrap_servers}

        def run(*command: str) -> str:
            done = subprocess.run(
                command,
                cwd=project,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        moldau = str(Path(sys.executable).with_name("moldau"))
        run(moldau, "topic", "create", "page-views", "--partitions", "3")
        run(moldau, "topic", "create", "page-views-per-minute")
        generate = (sys.executable, "generate.py", "--begin", "1794000000", "--views", "3000")
        run(*generate)
        run(moldau, "pipeline", "run", "--once")
        run(*generate, "--skip", "3000")  # the next ten minutes, read from where the first run ended
        run(moldau, "pipeline", "run", "--once")
        checked = run(sys.executable, "check.py")
    assert checked.count("as expected") == 9 and "WRONG" not in checked
