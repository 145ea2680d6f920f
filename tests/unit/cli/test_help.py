"""The command line as a whole: what it imports, what its help shows, how failures look."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from moldau.cli import up
from moldau.cli.app import COMMANDS, root, run
from moldau.cli.errors import EXIT_MEANINGS, Exit, did_you_mean
from moldau.cli.help import Command


def commands(
    group: click.Group = root, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


EVERY = list(commands())
LEAVES = [(path, command) for path, command in EVERY if not isinstance(command, click.Group)]


CONFIG_OF_A_CLUSTER = [("config", "get"), ("config", "set"), ("config", "unset")]


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("path", [(), *(path for path, _ in EVERY)], ids=" ".join)
def test_every_help_fits_80_columns_and_ends_with_examples(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*path, "--help") == Exit.OK
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    examples = text.partition("Examples:\n")[2]
    assert f"moldau {' '.join(path)}".strip() in examples


@pytest.mark.parametrize(
    ("path", "command"), LEAVES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_has_json_and_a_summary_that_matches_the_table(
    path: tuple[str, ...], command: click.Command
) -> None:
    assert isinstance(command, Command)
    options = {name for parameter in command.params for name in parameter.opts}
    if path != ("completion",):
        assert "--json" in options
    if path[0] in ("topic", "message", "bench") or path in CONFIG_OF_A_CLUSTER:
        assert {"--bootstrap", "--timeout", "-X"} <= options
    if len(path) == 1:
        assert (command.help or "").splitlines()[0] == COMMANDS[path[0]]


def test_groups_have_the_summary_of_the_table() -> None:
    for path, command in EVERY:
        if isinstance(command, click.Group):
            assert command.help == COMMANDS[path[0]]


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["up", "--help"]], ids=" ".join)
def test_help_imports_neither_clients_nor_drawing_nor_the_broker(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from moldau.cli.app import run\n"
        "try: run(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'confluent_kafka', 'rich', 'kio', 'uvloop', 'moldau.broker', 'moldau.config', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    allowed = ["asyncio"] if arguments[0] == "up" else []
    assert json.loads(done.stderr.replace("'", '"')) in ([], allowed)


def test_help_is_coloured_only_when_asked_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    called("--help")
    assert "\x1b[36m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    called("--help")
    assert "\x1b" not in capsys.readouterr().out


def test_the_help_documents_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    called("--help")
    text = capsys.readouterr().out
    for code in Exit:
        assert f"  {int(code):<3}  {EXIT_MEANINGS[code]}" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topik"], "There is no command 'topik'.\n       Did you mean topic?"),
        (["topic", "lst"], "There is no command 'topic lst'.\n       Did you mean list?"),
        (
            ["config", "zzz"],
            "There is no command 'config zzz'.\n       `moldau config --help` lists the commands.",
        ),
        (["completion"], "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish."),
        (["topic", "create"], "Missing argument 'TOPIC...'."),
        (["topic", "create", "x", "--partitions", "many"], "'many' is not a whole number."),
        (["topic", "create", "x", "--set", "nonsense"], "--set takes KEY=VALUE, not 'nonsense'."),
        (["topic", "alter", "x"], "Nothing to change."),
        (["message", "consume", "x", "--follow", "--to", "end"], "--follow and --to exclude each other."),
        (["message", "produce", "x", "v", "--file", "f"], "exclude each other"),
        (["config", "get", "broker", "one"], "'one' is no broker id."),
        (["topic", "describe", "a\udcff"], "'a\\xff' is not text in UTF-8."),
        (["topic", "create", "x", "--set", "retention.ms=\udcff"], "is not text in UTF-8."),
        (["message", "produce", "x", "--key", "\udcff", "v"], "is not text in UTF-8."),
        (["--no-such-option"], "No such option"),
        (["up", "--set", "log.retention.hourss=1"], "did you mean 'log.retention.hours'?"),
        (["up", "--set", "num.partitions=many"], "num.partitions"),
        (["up", "--set", "log.dirs=/x"], "`moldau up` sets log.dirs itself."),
        (
            ["up", "--port", "1", "--set", "listeners=PLAINTEXT://:2"],
            "--port and --set listeners=... exclude each other",
        ),
        (
            ["up", "--open", "--set", "listeners=PLAINTEXT://:2"],
            "--open and --set listeners=... exclude each other",
        ),
        (["up", "--store", "zookeper:localhost", "--data", ":temp:"], "is neither sqlite:PATH nor"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_sentence_with_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*arguments) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("brokers", ["1", "3"])
@pytest.mark.parametrize("name", ["log.dirs", "log.dir", "node.id", "broker.id"])
def test_up_refuses_what_it_sets_itself_from_variables_too(
    name: str,
    brokers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder that a variable named would be taken for --data, and for thrown away under `--data :temp:`."""
    variable = "MOLDAU_" + name.upper().replace(".", "_")
    monkeypatch.setenv(variable, "7")
    for started in ("run_one", "run_several"):
        monkeypatch.setattr(up, started, lambda *_, **__: pytest.fail("it starts"))
    assert called("up", "--brokers", brokers, "--data", str(tmp_path / "data")) == Exit.USAGE
    said = f"`moldau up` sets {name} itself, and there is a variable {variable}."
    assert said in capsys.readouterr().err


def test_an_error_is_json_under_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("topic", "list", "--json", "--bootstrap", "127.0.0.1:1") == Exit.UNREACHABLE
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["kind"] == "unreachable"
    assert "127.0.0.1:1" in error["message"] and error["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "lst", "--json"],
        ["completion", "--json"],
        ["up", "--json", "--no-such"],
        ["--json", "topic"],
    ],
    ids=" ".join,
)
def test_a_command_line_that_cannot_be_read_is_a_json_error_under_json(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*arguments) == Exit.USAGE
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "usage"


def test_json_behind_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("message", "produce", "--no-such", "topic", "--", "--json") == Exit.USAGE
    assert capsys.readouterr().err.startswith("error: ")


def test_summaries_of_commands_are_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    for path, command in EVERY:
        if isinstance(command, click.Group):
            called(*path, "--help")
            assert "..." not in capsys.readouterr().out.partition("Commands:")[2].partition("Examples:")[0]


def test_an_error_after_a_json_command_is_text_again(capsys: pytest.CaptureFixture[str]) -> None:
    called("topic", "list", "--json", "--bootstrap", "127.0.0.1:1")
    called("topic", "list", "--bootstrap", "127.0.0.1:1")
    assert capsys.readouterr().err.splitlines()[-2].startswith("error: ")


def test_a_missing_config_file_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("broker", "--config", "no-such-file.toml") == Exit.NOT_FOUND
    assert "There is no file no-such-file.toml." in capsys.readouterr().err


def test_the_unexpected_is_a_sentence_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("moldau.cli.completion.get_completion_class", broken)
    assert called("completion", "bash") == Exit.FAILED
    assert "ZeroDivisionError: boom" in capsys.readouterr().err
    monkeypatch.setenv("MOLDAU_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["completion", "bash"])


@pytest.mark.parametrize(("pressed", "code"), [(True, Exit.INTERRUPTED), (False, Exit.FAILED)])
def test_ctrl_c_that_a_client_has_lost_is_an_interruption_all_the_same(
    pressed: bool, code: Exit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def client(*_arguments: object) -> None:
        if pressed:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        raise SystemError("returned NULL without setting an exception")

    monkeypatch.setattr("moldau.cli.completion.get_completion_class", client)
    assert called("completion", "bash") == code
    assert ("unexpected" in capsys.readouterr().err) == (not pressed)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("topic") == Exit.USAGE
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_calls_us(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("completion", shell) == Exit.OK
    script = capsys.readouterr().out
    assert "_MOLDAU_COMPLETE" in script
    assert ("compopt -o nospace" in script) == (shell == "bash"), "a value follows `key=`, not a blank"


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["config", "set", "topic", "orders"], "retention", ["retention.bytes=", "retention.ms="]),
        (["config", "get", "broker", "1"], "num.part", ["num.partitions"]),
        (["config", "keys"], "flush", ["flush.messages", "flush.ms"]),
        (["topic", "create", "orders", "--set"], "segment.m", ["segment.ms="]),
        (["topic", "alter", "orders", "--unset"], "segment.m", ["segment.ms"]),
        (["up", "--set"], "num.part", ["num.partitions="]),
        (["topic"], "d", ["describe", "delete"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_commands_and_config_keys_are_completed(
    words: list[str], incomplete: str, offered: list[str]
) -> None:
    completion = ShellComplete(root, {}, "moldau", "_MOLDAU_COMPLETE")
    assert [item.value for item in completion.get_completions(words, incomplete)] == offered


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["up", "--data"], "dir"),
        (["doctor", "--data"], "dir"),
        (["broker", "--config"], "file"),
        (["message", "produce", "orders", "--file"], "file"),
        (["log", "verify"], "file"),
        (["log", "du"], "file"),
        (["log", "dump"], "file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_the_shell_is_asked_to_complete_files_and_folders(words: list[str], kind: str) -> None:
    completion = ShellComplete(root, {}, "moldau", "_MOLDAU_COMPLETE")
    assert [item.type for item in completion.get_completions(words, "mol")] == [kind]


def test_suggestions_name_only_what_is_near() -> None:
    assert did_you_mean("retention.mss", ["retention.ms", "segment.bytes"]) == "Did you mean retention.ms?"
    near = did_you_mean("billing", ["billing-1", "billing-2", "billing-3"])
    assert near.count(", ") == 1 and near.count(" or ") == 1
    assert did_you_mean("xyz", ["retention.ms"]) == ""
