"""`moldau config`: the configuration of topics and brokers, as the cluster has it; and the keys that Moldau
knows.

A value is text, checked by the cluster. What all brokers share is `broker all`; librdkafka cannot name it, so it
is asked for by `cluster_client`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.client import Connection
from moldau.cli.complete import config_keys, config_pairs, topic_names
from moldau.cli.errors import CliError, did_you_mean, not_found, usage
from moldau.cli.help import Group
from moldau.cli.options import Target, cluster_options, json_option, parse_pairs
from moldau.cli.output import Column, count_of, good, note, print_json, print_table, say

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry

    from moldau.cli.cluster_client import ClusterClient, Setting

SOURCES = {
    1: "topic",
    2: "changed while running",
    3: "cluster default",
    4: "set at the start",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
DEFAULT_SOURCE = 5
ALL = "all"
TOPIC_SOURCE = 1
TOPICS_AT_ONCE = 200
"""In one request: each is answered with all its settings."""


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    return topic_names(ctx, parameter, incomplete) if ctx.params.get("kind") == "topic" else []


kind_argument = click.argument("kind", type=click.Choice(["topic", "broker"]))


def check_name(ctx: click.Context, _parameter: click.Parameter, name: str) -> str:
    if ctx.params.get("kind") == "broker" and name != ALL and not name.isdigit():
        raise usage(
            f"'{name}' is no broker id.",
            f"Broker ids are numbers, and '{ALL}' is what all brokers share; `moldau doctor` lists the brokers.",
        )
    return name


name_argument = click.argument(
    "name", metavar="NAME|ID|all", shell_complete=complete_name, callback=check_name
)


@click.group(
    name="config",
    cls=Group,
    examples="""
moldau config get topic orders
moldau config set topic orders max.message.bytes=10485760
moldau config unset topic orders max.message.bytes
moldau config get broker 1 --all
moldau config keys 'log.segment*'
""",
)
def command() -> None:
    """Read and change the configuration of topics and brokers."""


@command.command(
    examples="""
# What differs from the defaults
moldau config get topic orders
# One value, for a script
moldau config get topic orders max.message.bytes
moldau config get broker 1 --all
"""
)
@kind_argument
@name_argument
@click.argument("keys", nargs=-1, metavar="[KEY...]", shell_complete=config_keys)
@click.option("-a", "--all", "everything", is_flag=True, help="Also what has its default.")
@cluster_options
@json_option()
def get(kind: str, name: str, keys: tuple[str, ...], everything: bool, target: Target, as_json: bool) -> None:
    """Show configs: what was changed, all, or the values of some keys."""
    entries: Mapping[str, ConfigEntry | Setting]
    if is_all(kind, name):
        with cluster_client(target) as client:
            entries = {entry.name: entry for entry in client.broker_defaults()}
    else:
        entries = read_configs(Connection(target), kind, name)
    if keys:
        missing = [key for key in keys if key not in entries]
        if missing:
            raise not_found(f"A {kind} has no config '{missing[0]}'.", did_you_mean(missing[0], entries))
        chosen = [entries[key] for key in keys]
    else:
        chosen = [entry for _, entry in sorted(entries.items()) if everything or is_changed(entry, kind)]
    if as_json:
        print_json({entry.name: document(entry) for entry in chosen})
    elif len(keys) == 1:
        say(chosen[0].value or "")
    elif chosen:
        columns = [Column("key", style="bold", fold=False), Column("value"), Column("from", style="dim")]
        print_table(columns, [[e.name, shown_value(e), SOURCES.get(e.source, "?")] for e in chosen])
    if not keys and not everything and not as_json and not is_all(kind, name):
        note(f"{count_of(len(entries) - len(chosen), 'key')} not changed here; --all shows them.")


def is_all(kind: str, name: str) -> bool:
    return kind == "broker" and name == ALL


def cluster_client(target: Target) -> ClusterClient:
    from moldau.cli.cluster_client import ClusterClient

    return ClusterClient(target)


def document(entry: ConfigEntry | Setting) -> dict[str, Any]:
    return {
        "value": entry.value,
        "source": SOURCES.get(entry.source, "unknown"),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }


def shown_value(entry: ConfigEntry | Setting) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "" if entry.value is None else str(entry.value)


@command.command(
    name="set",
    examples="""
moldau config set topic orders segment.bytes=104857600 flush.messages=1
moldau config set broker 1 message.max.bytes=10485760
# For all brokers of the cluster
moldau config set broker all min.insync.replicas=2
""",
)
@kind_argument
@name_argument
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...", shell_complete=config_pairs)
@click.option("--validate-only", is_flag=True, help="Let the cluster check it, but change nothing.")
@cluster_options
@json_option()
def set_configs(
    kind: str, name: str, pairs: tuple[str, ...], validate_only: bool, target: Target, as_json: bool
) -> None:
    """Change configs; all of them or, where one is refused, none."""
    changes = parse_pairs(pairs, "config set")
    if is_all(kind, name):
        with cluster_client(target) as client:
            client.change_broker_defaults(changes, (), validate_only=validate_only)
    else:
        change_configs(Connection(target), kind, name, changes, (), validate_only=validate_only)
    done = "would be changed" if validate_only else "changed"
    if as_json:
        print_json({"kind": kind, "name": name, "status": done, "configs": changes})
    else:
        say(f"{name}: {count_of(len(changes), 'config')} {good(done)}")


@command.command(examples="moldau config unset topic orders max.message.bytes")
@kind_argument
@name_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...", shell_complete=config_keys)
@cluster_options
@json_option()
def unset(kind: str, name: str, keys: tuple[str, ...], target: Target, as_json: bool) -> None:
    """Set configs back to their defaults."""
    if is_all(kind, name):
        with cluster_client(target) as client:
            client.change_broker_defaults({}, keys)
    else:
        change_configs(Connection(target), kind, name, {}, keys)
    if as_json:
        print_json({"kind": kind, "name": name, "status": "back to default", "keys": list(keys)})
    else:
        say(f"{name}: {count_of(len(keys), 'config')} {good('back to default')}")


@command.command(
    examples="""
moldau config keys 'flush*'
moldau config keys --scope topic
"""
)
@click.argument("pattern", default="*", metavar="[PATTERN]", shell_complete=config_keys)
@click.option("--scope", type=click.Choice(["broker", "topic", "group"]), help="Only the keys of one kind.")
@json_option()
def keys(pattern: str, scope: str | None, as_json: bool) -> None:
    """Explain the config keys that Moldau knows; needs no cluster."""
    from moldau.cli.config_keys import documented_keys

    chosen = [
        key
        for key in documented_keys()
        if fnmatch.fnmatchcase(key["name"], pattern) and scope in (None, key["scope"])
    ]
    if as_json:
        print_json(chosen)
        return
    if not chosen:
        names = {key["name"] for key in documented_keys()}
        raise not_found(f"No config key matches '{pattern}'.", did_you_mean(pattern, names))
    for key in chosen:
        print_key(key)


def print_key(key: dict[str, Any]) -> None:
    facts = [
        key["scope"],
        key["type"],
        f"default {key['default']}" if key["default"] is not None else "no default",
    ]
    if key["allowed"]:
        facts.append(key["allowed"])
    say(f"{click.style(key['name'], bold=True)}  {click.style(', '.join(facts), dim=True)}")
    text = key["doc"] if key["acts"] else f"{key['doc']} (Accepted and shown; it has no effect yet.)"
    say(click.wrap_text(text, width=78, initial_indent="  ", subsequent_indent="  "))


def resource(kind: str, name: str, entries: Sequence[ConfigEntry] = ()) -> Any:
    from confluent_kafka.admin import ConfigResource, ResourceType

    types = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}
    return ConfigResource(types[kind], name, incremental_configs=list(entries) or None)


def read_configs(connection: Connection, kind: str, name: str) -> dict[str, ConfigEntry]:
    wanted = resource(kind, name)
    require_broker(connection, kind, name)
    future = connection.admin.describe_configs([wanted], request_timeout=connection.target.timeout_s)[wanted]
    entries: dict[str, ConfigEntry] = connection.result(future, subject=name)
    return entries


def change_configs(
    connection: Connection,
    kind: str,
    name: str,
    changes: dict[str, str],
    unset: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    operations = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()
    ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    wanted = resource(kind, name, operations)
    require_broker(connection, kind, name)
    future = connection.admin.incremental_alter_configs(
        [wanted], validate_only=validate_only, request_timeout=connection.target.timeout_s
    )[wanted]
    connection.result(future, subject=name)


def require_broker(connection: Connection, kind: str, name: str) -> None:
    """A request to a broker that is not there would only time out."""
    if kind == "broker":
        brokers = sorted(connection.metadata().brokers)
        if int(name) not in brokers:
            raise not_found(
                f"There is no broker {name}.", f"The brokers are: {', '.join(map(str, brokers))}."
            )


def is_changed(entry: ConfigEntry | Setting, kind: str) -> bool:
    return bool(entry.source == TOPIC_SOURCE if kind == "topic" else entry.source != DEFAULT_SOURCE)


def topic_configs(connection: Connection, name: str) -> dict[str, ConfigEntry]:
    """For descriptions: nothing where they may not be read."""
    try:
        return read_configs(connection, "topic", name)
    except CliError:
        return {}


def changed_configs(entries: dict[str, ConfigEntry], kind: str) -> dict[str, str]:
    """What differs from the defaults."""
    return {key: shown_value(entry) for key, entry in sorted(entries.items()) if is_changed(entry, kind)}


def min_isr_of(connection: Connection, topics: Sequence[str]) -> dict[str, int]:
    """`min.insync.replicas` of topics, as far as it may be read."""
    found = {}
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        wanted = [resource("topic", name) for name in topics[first : first + TOPICS_AT_ONCE]]
        futures = connection.admin.describe_configs(wanted, request_timeout=connection.target.timeout_s)
        for asked, future in futures.items():
            try:
                found[asked.name] = min_isr(connection.result(future, subject=asked.name))
            except CliError:
                continue
    return found


def min_isr(entries: dict[str, ConfigEntry]) -> int:
    entry = entries.get("min.insync.replicas")
    return 1 if entry is None or entry.value is None else int(entry.value)
