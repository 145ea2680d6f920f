"""`moldau completion`: the script that teaches a shell our commands, options and topic names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from moldau.cli.errors import CliError
from moldau.cli.help import Command


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
    click.echo(completion(root, {}, "moldau", "_MOLDAU_COMPLETE").source())
