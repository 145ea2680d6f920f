"""`moldau quota`: how much users, client ids and addresses may use."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from moldau.cli.errors import did_you_mean, not_found, usage
from moldau.cli.help import Group
from moldau.cli.options import Target, cluster_options, json_option, parse_pairs
from moldau.cli.output import Column, count_of, good, human_bytes, note, print_json, print_table, say
from moldau.cli.quota_client import Entity, QuotaClient
from moldau.security.quotas import (
    CLIENT_ID,
    CONNECTION,
    FETCH,
    IP,
    IP_KEYS,
    MUTATION,
    PRODUCE,
    REQUEST,
    USER,
    USER_KEYS,
    shown_entity,
)

KEYS = (*USER_KEYS, *IP_KEYS)
BYTES = (PRODUCE, FETCH)
UNITS = {REQUEST: "%", MUTATION: "partitions/s", CONNECTION: "connections/s"}
PARTS = (("user", USER), ("client-id", CLIENT_ID), ("ip", IP))
LARGEST_BATCH_BYTES, WINDOW_S = 1_048_588, 10
"""message.max.bytes, and over how long a quota is measured at least: the brokers' defaults."""
_SCALES = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "KI": 1024, "MI": 1024**2, "GI": 1024**3}
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(|[KMG]I?)B?(?:/S)?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
Function = TypeVar("Function", bound=Callable[..., Any])


@click.group(
    name="quota",
    cls=Group,
    examples="""
moldau quota list
# A user may write 1 MB/s to each broker, and read 2 MB/s
moldau quota set --user alice producer_byte_rate=1MB consumer_byte_rate=2MB
# Each client id that has no quota of its own
moldau quota set --default-client-id producer_byte_rate=10MB
moldau quota remove --user alice
""",
)
def command() -> None:
    """How much users, client ids and addresses may use."""


def entity_options(function: Function) -> Function:
    """`--user`, `--default-user` and the like, as one `entity`."""

    @functools.wraps(function)
    def wanted(*args: Any, **kwargs: Any) -> Any:
        entity: dict[str, str | None] = {}
        for option, type_ in PARTS:
            name = kwargs.pop(option.replace("-", "_"))
            is_default = kwargs.pop(f"default_{option.replace('-', '_')}")
            if name is not None and is_default:
                raise usage(
                    f"--{option} and --default-{option} are two different things.", "Give one of them."
                )
            if name == "":
                raise usage(f"--{option} needs a name.")
            if name is not None or is_default:
                entity[type_] = name
        if IP in entity and len(entity) > 1:
            raise usage("An address has quotas by itself, not together with a user or client id.")
        return function(*args, entity=entity, **kwargs)

    decorated: Any = wanted
    for option, text in (
        ("ip", "An address: 10.0.0.7, 2001:db8::1."),
        ("client-id", "A client id, as clients name themselves."),
        ("user", "A user, without `User:` before it."),
    ):
        decorated = click.option(
            f"--default-{option}",
            is_flag=True,
            help=f"The default of each {option} without a quota of its own.",
        )(decorated)
        decorated = click.option(f"--{option}", metavar="NAME", help=text)(decorated)
    return decorated  # type: ignore[no-any-return]


@command.command(
    name="list",
    examples="""
moldau quota list
moldau quota list --user alice
moldau quota list --default-client-id --json
""",
)
@entity_options
@cluster_options
@json_option()
def list_quotas(entity: Entity, target: Target, as_json: bool) -> None:
    """List the quotas of the cluster, or those of a user, client id or address."""
    with QuotaClient(target) as client:
        found = client.quotas(entity)
    if as_json:
        print_json([{"entity": one.entity, "quotas": one.values} for one in found])
        return
    if not found:
        note("No quotas." if not entity else f"No quotas of {shown_entity(entity)}.")
        return
    rows = [
        (shown_entity(one.entity), key, shown(key, value))
        for one in found
        for key, value in sorted(one.values.items())
    ]
    print_table([Column("of", style="bold"), Column("quota"), Column("value", right=True)], rows)


@command.command(
    name="set",
    examples="""
moldau quota set --user alice producer_byte_rate=1MB consumer_byte_rate=2MB
moldau quota set --user alice --client-id nightly-export request_percentage=10
moldau quota set --default-ip connection_creation_rate=20
""",
)
@click.argument("pairs", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@entity_options
@click.option("--dry-run", is_flag=True, help="Only check whether the cluster would take it.")
@cluster_options
@json_option()
def set_quotas(pairs: tuple[str, ...], entity: Entity, dry_run: bool, target: Target, as_json: bool) -> None:
    """Set quotas. Rates are per second and for each broker; bytes take KB, MB, KiB, MiB."""
    require(entity)
    values = {key: parsed(entity, key, text) for key, text in parse_pairs(pairs, "moldau quota set").items()}
    with QuotaClient(target) as client:
        client.change_quotas(entity, values, validate_only=dry_run)
    if as_json:
        status = "could be set" if dry_run else "set"
        print_json({"entity": dict(entity), "quotas": values, "status": status})
        return
    told = ", ".join(f"{key} {shown(key, value)}" for key, value in values.items())
    say(f"{shown_entity(entity)}: {good('could be set' if dry_run else 'set')}: {told}")
    if (most := values.get(FETCH, LARGEST_BATCH_BYTES) * WINDOW_S) < LARGEST_BATCH_BYTES:
        note(f"A batch of more than {human_bytes(most)} is never read with that; producers may send 1 MB.")


@command.command(
    name="remove",
    examples="""
# One of them, or all that the user has
moldau quota remove --user alice producer_byte_rate
moldau quota remove --user alice
""",
)
@click.argument("keys", nargs=-1, metavar="[QUOTA...]")
@entity_options
@cluster_options
@json_option()
def remove_quotas(keys: tuple[str, ...], entity: Entity, target: Target, as_json: bool) -> None:
    """Take quotas away: these, or all of the user, client id or address."""
    require(entity)
    for key in keys:
        check_key(entity, key)
    with QuotaClient(target) as client:
        there = next((one.values for one in client.quotas(entity, strict=True)), {})
        wanted = keys or tuple(sorted(there))
        missing = [key for key in wanted if key not in there]
        if missing or not wanted:
            what = f" {' and '.join(missing)}" if missing else ""
            raise not_found(f"{shown_entity(entity)} has no quota{what}.", "`moldau quota list` shows them.")
        client.change_quotas(entity, dict.fromkeys(wanted))
    if as_json:
        print_json({"entity": dict(entity), "quotas": list(wanted), "status": "removed"})
        return
    say(f"{shown_entity(entity)}: {good('removed')}: {', '.join(wanted)}")
    if left := len(there) - len(wanted):
        note(f"{count_of(left, 'quota')} left.")


def require(entity: Entity) -> None:
    if not entity:
        raise usage(
            "Whose quota is it?",
            "Give --user, --client-id or --ip with a name, or --default-user, --default-client-id, --default-ip.",
        )


def check_key(entity: Entity, key: str) -> None:
    known = IP_KEYS if IP in entity else USER_KEYS
    if key in known:
        return
    if key in KEYS:
        raise usage(f"{shown_entity(entity)} cannot have a quota {key}.", f"It can have {', '.join(known)}.")
    raise usage(f"There is no quota {key}.", did_you_mean(key, known) or f"There are {', '.join(known)}.")


def parsed(entity: Entity, key: str, text: str) -> float:
    check_key(entity, key)
    if key in BYTES:
        if (found := _BYTES.fullmatch(text.strip())) is None:
            raise usage(f"{key}: '{text}' is not a rate in bytes, such as 512KB, 10MB or 1048576.")
        return float(int(float(found[1]) * _SCALES[found[2].upper()]))
    plain = text.strip().removesuffix("%") if key == REQUEST else text.strip()
    if _NUMBER.fullmatch(plain) is None:
        raise usage(f"{key}: '{text}' is not a number.")
    return float(plain)


def shown(key: str, value: float) -> str:
    if key in BYTES:
        return f"{human_bytes(value)}/s"
    return f"{value:g} {UNITS[key]}" if key in UNITS else f"{value:g}"
