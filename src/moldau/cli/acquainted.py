"""Whether the brokers of a cluster know each other: each of them tells clients of all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace

from moldau.cli.own_way import OwnWay
from moldau.peers.errors import Busy, Disconnected
from moldau.runtime.ports import Address
from moldau.wire.apis import APIS_BY_NAME

log = logging.getLogger("moldau.cli")

METADATA = APIS_BY_NAME["Metadata"].key
METADATA_VERSION = 12
NO_TOPICS = SimpleNamespace(
    topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
)
PAUSE_S = 0.02
PATIENCE_S = 10.0
"""After so long it is said that one is waited for."""
TIMEOUT_S = 5.0


async def wait_until_acquainted(way: OwnWay, addresses: Sequence[Address]) -> None:
    """Until each of these brokers knows as many."""
    for address in addresses:
        begun_s = way.runtime.clock.monotonic()
        is_said = False
        while await known_to(way, address) < len(addresses):
            await asyncio.sleep(PAUSE_S)
            if not is_said and way.runtime.clock.monotonic() - begun_s > PATIENCE_S:
                is_said = True
                log.warning("waiting for the broker at %s:%d to know all others", *address)


async def known_to(way: OwnWay, address: Address) -> int:
    """How many brokers a broker knows; none where it does not answer."""
    try:
        connection = await way.connection(address, TIMEOUT_S)
    except (OSError, Disconnected):
        return 0
    try:
        answer = await connection.ask(METADATA, METADATA_VERSION, NO_TOPICS, TIMEOUT_S)
        return len(answer.brokers)
    except (Disconnected, Busy):
        return 0
    finally:
        connection.close()
