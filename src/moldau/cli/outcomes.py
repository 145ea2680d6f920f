"""What became of several things that one command was asked to do: all are carried out, even where one fails."""

from __future__ import annotations

import click

from moldau.cli.errors import CliError
from moldau.cli.output import good, print_json, say

Outcome = str | CliError
"""What was done, in a word, or why it was not."""


def report(kind: str, outcomes: dict[str, Outcome], as_json: bool) -> None:
    """Say what was done and what failed; the last failure ends the command."""
    failures = [result for result in outcomes.values() if isinstance(result, CliError)]
    if as_json:
        print_json([_document(kind, name, result) for name, result in outcomes.items()])
    else:
        for name, result in outcomes.items():
            if isinstance(result, str):
                say(f"{name}: {good(result)}")
        for error in failures[:-1]:
            say(f"{click.style('error: ', fg='red', bold=True)}{error.message}", err=True)
    if failures:
        raise failures[-1]


def _document(kind: str, name: str, result: Outcome) -> dict[str, str]:
    if isinstance(result, CliError):
        return {kind: name, "status": "failed", "error": result.message}
    return {kind: name, "status": result}
