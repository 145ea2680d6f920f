"""The first user of a cluster that asks for a password: made by the broker itself, before it says that clients can
work.

Whoever is the controller makes it; the others wait until they see it. A user who is there already keeps the password
that it has.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from moldau.cli.data_folder import cannot_start

if TYPE_CHECKING:
    from moldau.broker.node import Broker
    from moldau.controller.users import Upsertion

ITERATIONS = 8192
SALT_BYTES = 24
MECHANISMS = 2  # SCRAM-SHA-256 and -512
PAUSE_S = 0.02


class FirstUser(NamedTuple):
    name: str
    password_file: str


async def see_to_first_user(broker: Broker, user: FirstUser) -> None:
    """CliError where it is refused."""
    from moldau.base.errors import KafkaError
    from moldau.metadata.records import ResourceType

    with open(user.password_file, encoding="utf-8") as file:
        password = file.readline().rstrip("\n")
    while len(broker.image.configs_of(ResourceType.USER).get(user.name, {})) < MECHANISMS:
        controller = broker.active_controller
        if controller is not None:
            with suppress(KafkaError):  # it is not the controller any more: another is, or it is asked again
                for upsertion in upsertions(user.name, password):  # a user once in a request, as in Kafka
                    (outcome,) = await controller.alter_users((), (upsertion,))
                    if outcome.error:
                        reason = outcome.message or outcome.error.name
                        raise cannot_start(f"The user {user.name} cannot be made: {reason}.", "")
        await asyncio.sleep(PAUSE_S)


def upsertions(name: str, password: str) -> list[Upsertion]:
    """For each mechanism of SCRAM: salted here, as clients do."""
    from moldau.controller.users import Upsertion
    from moldau.security.sasl.credentials import Mechanism

    made = []
    for mechanism in Mechanism:
        salt = os.urandom(SALT_BYTES)
        salted = mechanism.salted(password, salt, ITERATIONS)
        made.append(Upsertion(name, mechanism, ITERATIONS, salt, salted))
    return made
