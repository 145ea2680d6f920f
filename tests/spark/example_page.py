"""An example's page: the commands that it shows, run in a copy of the example, and what it says they print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

from spark.sparks_runner import alone, home

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 400


class ExamplePage:
    """`examples/pipelines/NAME/README.md`, run in a copy of that folder, against a broker of its own."""

    def __init__(self, name: str, folder: Path, bootstrap_servers: str) -> None:
        source = EXAMPLES / "pipelines" / name
        self.text = (source / "README.md").read_text()
        left_out = shutil.ignore_patterns("storage*", "lake", "spark-warehouse", "__pycache__")
        self.folder = Path(shutil.copytree(source, folder / "examples" / "pipelines" / name, ignore=left_out))
        self.environment = os.environ | {
            "MOLDAU_BOOTSTRAP": bootstrap_servers,
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": home(),
        }

    def blocks(self, kind: str) -> list[str]:
        """The text between the fences of this kind, in their order."""
        found = re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        return [text for of_kind, text in found if of_kind == kind]

    def commands(self, block: int) -> list[str]:
        """Of a block; a broker is there already, and so is the folder."""
        lines = self.blocks("")[block].splitlines()
        return [line for line in lines if not line.startswith(("moldau up", "cd "))]

    def printed(self, block: int) -> str:
        """What the page says that a command prints."""
        return self.blocks("text")[block]

    def run(self, command: str) -> str:
        with alone() if "spark-pipelines" in command else nullcontext():
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def run_block(self, block: int) -> str:
        """All commands of a block; what the last one printed. An `export` is for those below it."""
        printed = ""
        exports = ""
        for command in self.commands(block):
            if command.startswith("export "):
                exports += f"{command}; "
            else:
                printed = self.run(exports + command)
        return printed
