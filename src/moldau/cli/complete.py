"""What the shell can complete beyond options: names of topics and groups, and transactional ids, asked from the
cluster within a second or not at all; profiles; config keys; files and folders.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from moldau.cli.options import DEFAULT_BOOTSTRAP, Target, target_of

PATIENCE_S = 1.0


def target_in(ctx: click.Context) -> Target:
    """The cluster that the command line means, as far as it is written."""
    said = ctx.params
    return target_of(
        ctx,
        said.get("bootstrap") or DEFAULT_BOOTSTRAP,
        said.get("profile"),
        said.get("command_config"),
        said.get("property_") or (),
        PATIENCE_S,
    )


def topic_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from moldau.cli.client import Connection
    from moldau.cli.errors import CliError

    try:
        topics = Connection(target_in(ctx)).metadata().topics
    except CliError:
        return []
    return [CompletionItem(name) for name in sorted(topics) if name.startswith(incomplete)]


def group_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from moldau.cli.client import Connection
    from moldau.cli.errors import CliError
    from moldau.cli.group_view import all_groups

    try:
        groups = all_groups(Connection(target_in(ctx)))
    except CliError:
        return []
    return [CompletionItem(group["group"]) for group in groups if group["group"].startswith(incomplete)]


def transactional_ids(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from moldau.cli.client import Connection
    from moldau.cli.errors import CliError
    from moldau.cli.transaction_client import TransactionClient

    try:
        with TransactionClient(Connection(target_in(ctx))) as client:
            known = [one.transactional_id for one in client.listed()]
    except CliError:
        return []
    return [CompletionItem(name) for name in sorted(known) if name.startswith(incomplete)]


def profile_names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from moldau.cli.profiles import names

    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


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
