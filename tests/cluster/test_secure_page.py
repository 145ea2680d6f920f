"""What docs/secure.md shows is what works: its blocks are run in their order, against the brokers that it starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.shown import BLOCK, Page, parse
from moldau.runtime.real.free_ports import FreePorts

PAGE = Page("docs/secure.md")
TIMEOUT_S = 60
COMMAND = f"{sys.executable} -c 'from moldau.cli import main; main()'"
SERVERS = ("moldau up", "moldau broker")
FILE_NAME = re.compile(r"# (\S+)\n")


@pytest.mark.parametrize("line", sorted(set(PAGE.commands())))
def test_every_command_of_the_page_is_one_that_moldau_takes(line: str) -> None:
    parse(line)


class Reader:
    """Does what the page says, in a folder of its own and on ports that are free."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self._folder = folder
        self._ports = ports
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MOLDAU_")
        }
        self._environment |= {"XDG_CONFIG_HOME": str(folder / "config"), "NO_COLOR": "1"}
        self.servers: list[subprocess.Popen[str]] = []

    def here(self, text: str) -> str:
        for shown, port in self._ports.items():
            text = text.replace(f"localhost:{shown}", f"localhost:{port}")
        return text

    def read(self, kind: str, block: str) -> None:
        block = self.here(block)
        if name := FILE_NAME.match(block):
            (self._folder / name[1]).write_text(block)
        elif kind == "python":
            self.run(sys.executable, "-c", block)
        else:
            for line in block.splitlines():
                self.type(line)

    def type(self, line: str) -> str:
        if line.startswith("moldau up"):
            line += f" --port {self._ports['9092']}"
        shell = re.sub(r"(^|\| )moldau ", rf"\1{COMMAND} ", line)
        if not line.startswith(SERVERS):
            return self.run("sh", "-c", shell)
        with (self._folder / "errors").open("ab") as errors:
            server = subprocess.Popen(
                ["sh", "-c", f"exec {shell}"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self._folder,
                env=self._environment,
            )
        self.servers.append(server)
        assert server.stdout is not None
        first = server.stdout.readline()
        assert first.startswith("ready: "), (first, (self._folder / "errors").read_text())
        while line.startswith("moldau up") and "profile local" not in server.stdout.readline():
            assert server.poll() is None
        return first

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    ports = FreePorts("localhost")
    chosen = {"9092": ports.take(), "9093": ports.take()}
    ports.let_servers_have_them()
    reader = Reader(tmp_path, chosen)
    yield reader
    for server in reader.servers:
        server.terminate()
        server.wait(TIMEOUT_S)
        assert server.stdout is not None
        server.stdout.close()
    ports.close()


@pytest.mark.slow
def test_the_blocks_do_what_the_page_says(reader: Reader, tmp_path: Path) -> None:
    assert {kind for kind, _ in PAGE.blocks} == {"", "python", "toml"}
    for kind, block in BLOCK.findall(PAGE.text):
        reader.read(kind, block)
    assert len(reader.servers) == 2
    shown = reader.type("moldau message consume orders --count 2 --json")
    assert "3 apples" in shown and "3 pears" in shown
    assert "letters" in reader.type("moldau topic list --profile mine")
    assert reader.type("moldau profile show local").count("(hidden)") == 1
