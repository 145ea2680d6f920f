"""The cluster's `min.insync.replicas` as `moldau up` and `moldau broker` see to it when they start.

It is one value for all brokers, kept in the cluster store: a configuration file gives a new cluster its first one, and
changes nothing later. What a person asks `moldau up` for, and what comes with more brokers, is brought into force
before it says that it is ready; a file of `moldau broker` that says something else is told so.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from moldau.cli.own_way import OwnWay
    from moldau.config.broker import BrokerConfig
    from moldau.runtime.ports import Address

log = logging.getLogger("moldau.cli")

MIN_ISR = "min.insync.replicas"
BROKER = 4  # a resource type
SET = 0  # an operation of IncrementalAlterConfigs
DESCRIBE_VERSION, ALTER_VERSION = 4, 1
ATTEMPTS = 20
PAUSE_S = 0.25
TIMEOUT_S = 5.0


class Wanted(NamedTuple):
    """What the cluster is to have."""

    value: int
    instead_of: int | None = None
    """Only where it has this; None: whatever it has."""


def wanted_of(options: Mapping[str, str], *, before: int, brokers: int) -> Wanted | None:
    """What is asked for by --set or a variable; else what more brokers bring, where nobody has changed it. `before`:
    how many there were, if any.
    """
    from moldau.cli.up_plan import in_sync_for
    from moldau.config.sources import parse_variables

    asked = parse_variables(os.environ).settings | dict(options)
    if MIN_ISR in asked:
        return Wanted(int(asked[MIN_ISR]))
    if 0 < before < brokers and in_sync_for(before) != in_sync_for(brokers):
        return Wanted(in_sync_for(brokers), instead_of=in_sync_for(before))
    return None


async def bring_into_force(way: OwnWay, address: Address, wanted: Wanted) -> None:
    """Give the cluster this value, through one of its brokers. Where that cannot be done it is said."""
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            before = await _change(way, address, wanted)
        except (OSError, _Refused) as error:
            problem = str(error)
            await asyncio.sleep(PAUSE_S)
            continue
        if before is not None:
            log.info("%s is %d now, for the whole cluster; it was %d", MIN_ISR, wanted.value, before)
        return
    log.error(
        "%s could not be set to %d: %s",
        MIN_ISR,
        wanted.value,
        problem,
        extra={"hint": how_to_change(wanted.value)},
    )


def warn_of_file(file: BrokerConfig, in_force: int) -> None:
    """A broker's file says something else than its cluster."""
    if MIN_ISR in file.static and file[MIN_ISR] != in_force:
        log.warning(
            "%s=%s of this broker has no effect: it is %d in the whole cluster",
            MIN_ISR,
            file.static[MIN_ISR],
            in_force,
            extra={"hint": how_to_change(file[MIN_ISR])},
        )


def how_to_change(value: int) -> str:
    return f"`moldau config set broker all {MIN_ISR}={value}` changes it."


class _Refused(Exception):
    pass


async def _change(way: OwnWay, address: Address, wanted: Wanted) -> int | None:
    """The value before; None where it stays."""
    from moldau.peers.errors import Busy, Disconnected

    try:
        connection = await way.connection(address, TIMEOUT_S)
    except Disconnected as error:
        raise _Refused(str(error)) from error

    async def ask(api: str, version: int, **fields: Any) -> Any:
        from moldau.wire.apis import APIS_BY_NAME

        message = SimpleNamespace(**fields)
        try:
            return await connection.ask(APIS_BY_NAME[api].key, version, message, TIMEOUT_S)
        except (Disconnected, Busy) as error:
            raise _Refused(str(error)) from error

    try:
        asked = SimpleNamespace(resource_type=BROKER, resource_name="", configuration_keys=(MIN_ISR,))
        answer = await ask(
            "DescribeConfigs",
            DESCRIBE_VERSION,
            resources=(asked,),
            include_synonyms=False,
            include_documentation=False,
        )
        (before,) = [int(config.value) for config in answer.results[0].configs]
        if before == wanted.value or wanted.instead_of not in (None, before):
            return None
        change = SimpleNamespace(name=MIN_ISR, config_operation=SET, value=str(wanted.value))
        resource = SimpleNamespace(resource_type=BROKER, resource_name="", configs=(change,))
        answer = await ask(
            "IncrementalAlterConfigs", ALTER_VERSION, resources=(resource,), validate_only=False
        )
        (outcome,) = answer.responses
        if outcome.error_code:
            raise _Refused(outcome.error_message or outcome.error_code.name)
        return before
    finally:
        connection.close()
