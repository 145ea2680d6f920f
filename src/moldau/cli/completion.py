"""`moldau completion`: the script that teaches a shell our commands, options, topic names and config keys."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from moldau.cli.errors import CliError
from moldau.cli.help import Command

BASH_END = "\n    return 0\n"
# After `retention.ms=` a value follows, not a blank.
BASH_PAIRS = "\n    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"


@click.command(
    name="completion",
    cls=Command,
    examples="""
# bash: in ~/.bashrc
eval "$(moldau completion bash)"
# zsh: in ~/.zshrc
eval "$(moldau completion zsh)"
# fish
moldau completion fish > ~/.config/fish/completions/moldau.fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    from moldau.cli.app import root

    completion = get_completion_class(shell)
    if completion is None:
        raise CliError(f"There is no completion for {shell}.")
    script = completion(root, {}, "moldau", "_MOLDAU_COMPLETE").source()
    click.echo(script.replace(BASH_END, BASH_PAIRS + BASH_END) if shell == "bash" else script)
