"""Whether the brokers of a cluster know each other: each of them tells clients of all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace

from moldau.peers.connection import PeerConnection
from moldau.peers.errors import Busy, Disconnected
from moldau.runtime.ports import Address, Runtime
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


async def wait_until_acquainted(runtime: Runtime, addresses: Sequence[Address]) -> None:
    """Until each of these brokers knows as many."""
    for address in addresses:
        begun_s = runtime.clock.monotonic()
        is_said = False
        while await known_to(runtime, address) < len(addresses):
            await asyncio.sleep(PAUSE_S)
            if not is_said and runtime.clock.monotonic() - begun_s > PATIENCE_S:
                is_said = True
                log.warning("waiting for the broker at %s:%d to know all others", *address)


async def known_to(runtime: Runtime, address: Address) -> int:
    """How many brokers a broker knows; none where it does not answer."""
    try:
        connection = await PeerConnection.open(runtime, *address, "moldau-up", timeout_s=TIMEOUT_S)
    except OSError:
        return 0
    try:
        answer = await connection.ask(METADATA, METADATA_VERSION, NO_TOPICS, TIMEOUT_S)
        return len(answer.brokers)
    except (Disconnected, Busy):
        return 0
    finally:
        connection.close()
