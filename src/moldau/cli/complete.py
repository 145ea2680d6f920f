"""What the shell can complete beyond options: names of topics and groups, and transactional ids, asked from the
cluster within a second or not at all; config keys; files and folders.
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


def group_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from moldau.cli.client import Connection
    from moldau.cli.errors import CliError
    from moldau.cli.group_view import all_groups

    bootstrap = ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        groups = all_groups(Connection(Target(bootstrap, timeout_s=PATIENCE_S)))
    except CliError:
        return []
    return [CompletionItem(group["group"]) for group in groups if group["group"].startswith(incomplete)]


def transactional_ids(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from moldau.cli.client import Connection
    from moldau.cli.errors import CliError
    from moldau.cli.transaction_client import TransactionClient

    bootstrap = ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with TransactionClient(Connection(Target(bootstrap, timeout_s=PATIENCE_S))) as client:
            known = [one.transactional_id for one in client.listed()]
    except CliError:
        return []
    return [CompletionItem(name) for name in sorted(known) if name.startswith(incomplete)]


def config_keys(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of topics or brokers, where the command line says which."""
    return keys_of(ctx.params.get("kind"), incomplete, "")


def config_pairs(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The KEY= of a KEY=VALUE."""
    return keys_of(ctx.params.get("kind"), incomplete, "=")


def topic_keys(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return keys_of("topic", incomplete, "")


def topic_pairs(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return keys_of("topic", incomplete, "=")


def broker_pairs(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return keys_of("broker", incomplete, "=")


def keys_of(scope: str | None, incomplete: str, suffix: str) -> list[CompletionItem]:
    from moldau.cli.config_keys import key_names

    return [CompletionItem(name + suffix) for name in sorted(key_names(scope)) if name.startswith(incomplete)]


def files(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def folders(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]
