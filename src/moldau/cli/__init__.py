"""The command line: `moldau`. It starts in milliseconds because nothing is imported before the command needs
it.
"""

from __future__ import annotations


def main() -> None:
    """The entry point of the `moldau` command; ends the process with an exit code of `cli.errors`."""
    from moldau.cli.app import run

    run()
