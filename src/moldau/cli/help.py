"""How help looks: headings in colour on terminals, options in one column, and examples at the end.

Colour follows one rule for the whole command line (`colour_setting`): NO_COLOR switches it off, FORCE_COLOR
on, and otherwise it depends on whether the stream is a terminal.
"""

from __future__ import annotations

import os
from typing import Any

import click

from moldau.cli.errors import did_you_mean, usage

SUMMARY_MAX = 200  # whole sentences: they go on in the next line where the terminal is narrow


def colour_setting() -> bool | None:
    """False: never; True: always; None: on terminals."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return None


class Formatter(click.HelpFormatter):
    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(heading + ':', fg='cyan', bold=True)}\n")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, click.style("Usage:", fg="cyan", bold=True) + " ")

    def write_examples(self, examples: str) -> None:
        with self.section("Examples"):
            for line in examples.strip().splitlines():
                styled = click.style(line, dim=True) if line.startswith("#") else line
                self.write(f"{'':>{self.current_indent}}{styled}\n")


class Context(click.Context):
    formatter_class = Formatter


class _WithExamples:
    """Examples after the options, where people look for them. They are shown as written, never re-wrapped."""

    context_class: type[click.Context] = Context
    examples: str = ""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples and isinstance(formatter, Formatter):
            formatter.write_examples(self.examples)


# The same in every command that talks to a cluster; shown apart, so that a command's own options stand out.
COMMON_OPTIONS = frozenset(
    {"--bootstrap", "--profile", "--command-config", "-X", "--timeout", "--json", "--help"}
)


class Command(_WithExamples, click.Command):
    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Common options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                common = not COMMON_OPTIONS.isdisjoint(parameter.opts)
                sections["Common options" if common else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(_WithExamples, click.Group):
    """A group whose commands are listed as they were written, not by the alphabet."""

    command_class = Command

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("no_args_is_help", True)
        super().__init__(*args, **kwargs)
        self.examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, command.get_short_help_str(SUMMARY_MAX)) for name, command in commands if command]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            hint = did_you_mean(args[0], known) or f"`{ctx.command_path} --help` lists the commands."
            words = [*ctx.command_path.split()[1:], args[0]]
            raise usage(f"There is no command '{' '.join(words)}'.", hint)
        return super().resolve_command(ctx, args)
