"""The prompt of `moldau sql` at a terminal: lines, history, completion, Ctrl-C. No Spark."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from moldau.cli.sql_prompt import HISTORY_MAX, History, history_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no pty and no readline")
TIMEOUT_S = 60.0
CHILD = """
from moldau.cli.sql_prompt import History, Prompt, history_file

class Known:
    def tables(self): return ["orders", "my-orders"]
    def columns(self, table): return ["price", "item"] if table == "orders" else []
    def streams(self): return []

prompt = Prompt(Known(), History(history_file()), lambda: None)
with prompt.ready():
    for text in prompt.statements():
        print("GOT", repr(text), flush=True)
print("END", flush=True)
"""


def test_lines_history_completion_and_ctrl_c(tmp_path: Path) -> None:
    from terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal

    command = [sys.executable, "-c", CHILD]
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with Terminal(command, environment, tmp_path) as terminal:
        terminal.wait_for("moldau> ", TIMEOUT_S)
        terminal.send("SELECT pr", TAB, ENTER)
        terminal.wait_for("-> ", TIMEOUT_S)
        terminal.send("FROM my", TAB, ";", ENTER)
        shown = terminal.wait_for("GOT 'SELECT pr\\nFROM `my-orders`;'\n", TIMEOUT_S)
        assert "Traceback" not in shown
        terminal.wait_for("moldau> ", TIMEOUT_S)
        terminal.send("SELECT  FROM orders;", "\x01", "\x1bf", " pri", TAB, ENTER)
        terminal.wait_for("GOT 'SELECT price", TIMEOUT_S)
        terminal.wait_for("moldau> ", TIMEOUT_S)
        terminal.send("SELECT nothing")
        terminal.wait_for("nothing", TIMEOUT_S)
        terminal.press_until(CTRL_C, "moldau> ", TIMEOUT_S)
        terminal.send(UP, UP, ENTER)
        terminal.wait_for("GOT 'SELECT pr FROM `my-orders`;'\n", TIMEOUT_S)
        terminal.wait_for("moldau> ", TIMEOUT_S)
        terminal.send(CTRL_D)
        terminal.wait_for("END", TIMEOUT_S)
        assert terminal.process.wait(TIMEOUT_S) == 0

    with Terminal(command, environment, tmp_path) as terminal:
        terminal.wait_for("moldau> ", TIMEOUT_S)
        terminal.send(UP, ENTER)
        terminal.wait_for("GOT 'SELECT pr FROM `my-orders`;'\n", TIMEOUT_S)
        terminal.wait_for("moldau> ", TIMEOUT_S)
        terminal.send("help", ENTER)
        terminal.wait_for("GOT 'help'\n", TIMEOUT_S)


def test_the_history_is_its_owners_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = history_file()
    assert path == tmp_path / "moldau" / "sql_history"
    history = History(path)
    assert history.load() == []
    history.add("SELECT 1;")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("".join(f"{number}\n" for number in range(HISTORY_MAX + 5)))
    assert history.load()[0] == "5"
    assert len(path.read_text().splitlines()) == HISTORY_MAX


def test_a_folder_that_cannot_be_written_costs_the_history_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "sql_history")
    history.add("SELECT 1;")
    assert history.load() == []
