"""What the shell can complete beyond options: topic names, asked from the cluster within a second or not at
all.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from moldau.cli.options import DEFAULT_BOOTSTRAP, Target

PATIENCE_S = 1.0


def topic_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from moldau.cli.client import Connection
    from moldau.cli.errors import CliError

    bootstrap = ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        topics = Connection(Target(bootstrap, timeout_s=PATIENCE_S)).metadata().topics
    except CliError:
        return []
    return [CompletionItem(name) for name in sorted(topics) if name.startswith(incomplete)]
