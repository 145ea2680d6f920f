"""The root of the command line: the table of commands, and the one place where failures become sentences.

Sub-commands are imported when they are called, so `moldau --help` and `moldau up` pay only for what they use.
The table carries each command's one-line summary for that reason.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NoReturn

import click

from moldau.cli.errors import EXIT_MEANINGS, CliError, Exit, debugging, unexpected
from moldau.cli.help import Group, colour_setting
from moldau.cli.interrupts import CtrlC
from moldau.cli.options import expect_json, json_wanted
from moldau.cli.output import say, wrapped

COMMANDS = {
    "up": "Run a broker, or several, on this machine until Ctrl-C.",
    "broker": "Run one broker from a configuration file.",
    "topic": "Create, list, describe, alter, trim and delete topics.",
    "message": "Produce messages from stdin, consume to stdout.",
    "group": "List, describe, reset and delete consumer groups.",
    "transaction": "List, describe and abort transactions.",
    "cluster": "Brokers, health, elections, and moving partitions.",
    "user": "Create, list and delete users with passwords (SCRAM).",
    "acl": "Say who may do what, with ACLs.",
    "config": "Read and change the configuration of topics and brokers.",
    "quota": "How much users, client ids and addresses may use.",
    "certs": "Make an authority, and certificates for brokers and clients.",
    "profile": "Name the settings of a cluster: address, certificates, user.",
    "log": "Dump, verify and measure the files of a data folder.",
    "import": "Take over the data of an Apache Kafka 4 node.",
    "sql": "Query topics with SQL, on Spark, at a prompt or from a script.",
    "pipeline": "Run Spark Declarative Pipelines projects for ever.",
    "audit": "Show what was lost or doubled between producers, topics and the lake.",
    "bench": "Measure throughput and latency of a cluster.",
    "zookeeper": "Run a ZooKeeper ensemble on this machine, for trials and tests.",
    "doctor": "Check this machine, a data folder and a cluster.",
    "completion": "Print the completion script of a shell.",
}

# Where a command's module cannot have its name.
MODULES = {"import": "import_kafka"}

INDENT = " " * len("error: ")
EXAMPLES = """
# A broker on localhost:9092, its data in ./moldau-data
moldau up
# In another terminal: a topic, some messages, and what is in it
moldau topic create orders --partitions 3
echo 'hello' | moldau message produce orders
moldau message consume orders
"""


class Root(Group):
    """Finds its commands by name in `COMMANDS`, each in the module of the same name or as `MODULES` says."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"moldau.cli.{MODULES.get(cmd_name, cmd_name)}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            outcome = super().invoke(ctx)
            sys.stdout.flush()
            return outcome
        except BrokenPipeError:  # here, because click's own answer to it is a failure
            return end_quietly()

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        return list(COMMANDS.items())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in EXIT_MEANINGS.items()])
        with formatter.section("Environment"):
            formatter.write_dl(
                [
                    ("MOLDAU_BOOTSTRAP", "the cluster's address, where --bootstrap is not given"),
                    ("MOLDAU_PROFILE", "the profile of `moldau profile`, where --profile is not given"),
                    ("MOLDAU_DEBUG=1", "show tracebacks and the client's own log"),
                    ("NO_COLOR", "no colours, on terminals either"),
                ]
            )


def show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from moldau import __version__

        click.echo(f"moldau {__version__} (Python {sys.version.split()[0]})")
        ctx.exit()


@click.group(
    cls=Root,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version.",
)
def root() -> None:
    """A commit log in Python that speaks Kafka's protocol."""


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run one command line, and end the process with its exit code."""
    expect_json(sys.argv[1:] if arguments is None else arguments)
    ctrl_c = CtrlC()
    try:
        with ctrl_c:
            outcome = root.main(arguments, prog_name="moldau", standalone_mode=False, color=colour_setting())
        code = outcome if isinstance(outcome, int) else Exit.OK
    except CliError as error:
        code = report(error)
    except click.ClickException as error:
        code = show_help(error) if type(error).__name__ == "NoArgsIsHelpError" else report(from_click(error))
    except (click.Abort, KeyboardInterrupt):
        code = interrupted()
    except Exception as error:
        if ctrl_c.pressed and isinstance(error, SystemError):
            code = interrupted()
        elif debugging():
            raise
        else:
            code = report(unexpected(error))
    sys.exit(int(code))


def interrupted() -> Exit:
    click.echo("", err=True)  # the terminal shows ^C in the current line
    return Exit.INTERRUPTED


def report(error: CliError) -> Exit:
    if debugging() and error.__cause__ is not None:
        import traceback

        traceback.print_exception(error.__cause__)
    if json_wanted():
        click.echo(error.as_json(), err=True)
    else:
        heading = click.style("error: ", fg="red", bold=True)
        say(heading + wrapped(error.message, len(INDENT), err=True), err=True)
        if error.hint:
            say(INDENT + wrapped(error.hint, len(INDENT), err=True), err=True)
    return error.code


def show_help(error: click.ClickException) -> Exit:
    """A group that was called without a command shows what it has."""
    click.echo(error.format_message(), err=True, color=colour_setting())
    return Exit.USAGE


def from_click(error: click.ClickException) -> CliError:
    """Click's own usage errors, in the same shape as ours."""
    message = " ".join(error.format_message().split())  # click lists choices on lines of their own
    if not message.endswith((".", "?")):
        message += "."
    context = getattr(error, "ctx", None)
    hint = f"See `{context.command_path} --help`." if context is not None else ""
    return CliError(message, hint, Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED)


def end_quietly() -> Exit:
    """The reader of our output (`| head`) has gone: no failure, and nothing for Python to complain about."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK
