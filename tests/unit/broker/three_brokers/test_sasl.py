"""Three brokers that say to each other who they are, by each mechanism."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.controller.users import Upsertion
from moldau.security.sasl.credentials import MECHANISMS
from moldau.sim.world import World

from .trio import IDS, TOPIC, Trio

PASSWORD = "the brokers' secret"
MODULE = "org.apache.kafka.common.security"
LINES = {
    "PLAIN": f'{MODULE}.plain.PlainLoginModule required username="broker" password="{PASSWORD}" '
    f'user_broker="{PASSWORD}";',
    "SCRAM-SHA-256": f'{MODULE}.scram.ScramLoginModule required username="broker" password="{PASSWORD}";',
    "SCRAM-SHA-512": f'{MODULE}.scram.ScramLoginModule required username="broker" password="{PASSWORD}";',
}


def settings(mechanism: str, line: str, **more: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://:9092,BROKERS://:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.enabled.mechanisms": mechanism,
        f"listener.name.brokers.{mechanism.lower()}.sasl.jaas.config": line,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


async def with_users(trio: Trio, mechanism: str) -> None:
    """The first broker is the controller, and has the brokers' user before the others come."""
    await trio.start(1)
    if mechanism in MECHANISMS:
        one = MECHANISMS[mechanism]
        salted = one.salted(PASSWORD, b"salt", 4096)
        change = Upsertion("broker", int(one), 4096, b"salt", salted)
        controller = trio.brokers[1].controller
        await trio.brokers[1].tasks.spawn(controller.alter_users([], [change]), name="users")


@pytest.mark.parametrize("mechanism", LINES)
def test_brokers_replicate_and_fail_over(mechanism: str) -> None:
    async def scene() -> None:
        await with_users(trio, mechanism)
        await trio.start(2, 3)
        await trio.create((2, 3, 1))
        answer = await trio.produce(2, b"told to all")
        assert answer.error_code is ErrorCode.none
        await trio.until(lambda: trio.partition(1).high_watermark == 1)
        trio.kill(2)
        await trio.until(lambda: trio.state().leader == 3, "another leader")
        await trio.start(2)
        await trio.until(lambda: set(trio.state().isr) == set(IDS), "all in sync")
        assert TOPIC in trio.brokers[2].image.topics

    with World(1) as world:
        trio = Trio(world, lambda _: settings(mechanism, LINES[mechanism]))
        world.run(scene())
        assert not world.failures


def test_sessions_of_brokers_end_without_harm() -> None:
    async def scene() -> None:
        await with_users(trio, "PLAIN")
        await trio.start(2, 3)
        await trio.create((2, 3, 1))
        for number in range(20):
            answer = await trio.produce(2, b"value")
            assert answer.error_code is ErrorCode.none
            await world.sleep(1)
            await trio.until(lambda: trio.partition(1).high_watermark == number + 1)  # noqa: B023
            assert set(trio.state().isr) == set(IDS)
        assert sum(broker.metrics.authentications for broker in trio.brokers.values()) > 20

    with World(1) as world:
        own = settings("PLAIN", LINES["PLAIN"], connections__max__reauth__ms="3000")
        trio = Trio(world, lambda _: own)
        world.run(scene())
        assert not world.failures


def test_a_broker_with_a_wrong_password_does_not_join() -> None:
    async def scene() -> None:
        await with_users(trio, "PLAIN")
        hosts = trio._hosts
        starting = hosts[2].runtime.tasks.spawn(trio.start(2), name="start")
        await world.sleep(30)
        assert not starting.done()
        assert set(trio.brokers[1].image.registered) == {1}
        assert trio.brokers[1].metrics.authentications_failed > 0
        starting.cancel()

    with World(1) as world:
        bad = LINES["PLAIN"].replace('password="the', 'password="not the')
        trio = Trio(world, lambda node_id: settings("PLAIN", bad if node_id == 2 else LINES["PLAIN"]))
        world.run(scene())
