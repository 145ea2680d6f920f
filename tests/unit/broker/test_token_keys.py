"""Tokens at the gate, and the keys that they are checked with: fetched when they are needed, and seldom."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sasl_stage import Client, Gone, Stage, played

from moldau.base import limits
from moldau.base.errors import ErrorCode
from moldau.broker.node import Broker

KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("one", "two")}
URL = "https://issuer/keys"
INVALID = b'{"status":"invalid_token"}'
SETTINGS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": URL,
    "sasl.oauthbearer.expected.audience": "brokers",
}


def jwks(*names: str) -> bytes:
    kind: Any = jwt.algorithms.ECAlgorithm
    items = [json.loads(kind.to_jwk(KEYS[name].public_key())) | {"kid": name} for name in names]
    return json.dumps({"keys": items}).encode()


class Web:
    """What a broker fetches from."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.fetched = 0
        self.is_down = False

    def fetch(self, url: str, seconds_max: float, bytes_max: int) -> bytes:
        assert (url, seconds_max, bytes_max) == (URL, limits.JWKS_FETCH_S_MAX, limits.JWKS_BYTES_MAX)
        self.fetched += 1
        if self.is_down:
            raise OSError("the server is down")
        return jwks(*self.names)


def token(stage: Stage, key: str = "one", lifetime_s: int = 600, **claims: Any) -> str:
    now_s = stage.broker.clock.wall_ms() // 1000
    said = {"sub": "alice", "iat": now_s, "exp": now_s + lifetime_s, "aud": "brokers"} | claims
    return jwt.encode(said, KEYS[key], algorithm="ES256", headers={"kid": key})


async def sent(stage: Stage, text: str) -> tuple[Client, Any]:
    client = await stage.client()
    await client.handshake("OAUTHBEARER")
    return client, await client.authenticate(f"n,,\x01auth=Bearer {text}\x01\x01".encode())


async def is_let_in(stage: Stage, text: str) -> bool:
    client, answer = await sent(stage, text)
    assert answer.error_code is ErrorCode.none
    if not answer.auth_bytes:
        assert (await client.metadata()).brokers
        return True
    assert answer.auth_bytes == INVALID
    last = await client.authenticate(b"\x01")
    assert (last.error_code, last.error_message) == (ErrorCode.sasl_authentication_failed, INVALID.decode())
    assert await client.ended()
    return False


def with_web(web: Web) -> Any:
    def start(stage: Stage) -> None:
        stage.broker_options = {"fetch": web.fetch}

    return start


def test_keys_are_fetched_once_for_many_tokens() -> None:
    web = Web("one")

    async def scene(stage: Stage) -> None:
        assert web.fetched == 0
        for _ in range(5):
            assert await is_let_in(stage, token(stage))
        assert not await is_let_in(stage, token(stage, aud="others"))
        assert not await is_let_in(stage, token(stage, lifetime_s=-31))
        assert web.fetched == 1

    played(scene, before=with_web(web), **SETTINGS)


def test_a_new_key_is_looked_for_but_seldom() -> None:
    web = Web("one")

    async def scene(stage: Stage) -> None:
        assert await is_let_in(stage, token(stage))
        web.names = ("one", "two")
        await stage.world.sleep(limits.JWKS_EARLY_REFRESH_S_MIN)
        assert await is_let_in(stage, token(stage, "two"))
        assert web.fetched == 2
        web.names = ("one",)
        for _ in range(3):  # whoever invents keys does not have them fetched each time
            text = jwt.encode({}, KEYS["one"], algorithm="ES256", headers={"kid": "invented"})
            assert not await is_let_in(stage, text)
        assert web.fetched == 2

    played(scene, before=with_web(web), **SETTINGS)


def test_keys_serve_on_while_newer_ones_cannot_be_had() -> None:
    web = Web("one")

    async def scene(stage: Stage) -> None:
        assert await is_let_in(stage, token(stage))
        web.is_down = True
        await stage.world.sleep(100)
        for _ in range(3):
            assert await is_let_in(stage, token(stage))
            await stage.world.sleep(1)
        assert web.fetched >= 2
        web.is_down, web.names = False, ("two",)
        await stage.world.sleep(10)
        assert await is_let_in(stage, token(stage))  # has them fetched
        await stage.world.sleep(1)
        assert not await is_let_in(stage, token(stage)), "a key that is gone counts no more"
        assert await is_let_in(stage, token(stage, "two"))

    played(scene, before=with_web(web), **(SETTINGS | {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000"}))


def test_without_keys_nobody_is_let_in() -> None:
    web = Web("one")
    web.is_down = True

    async def scene(stage: Stage) -> None:
        for _ in range(3):
            assert not await is_let_in(stage, token(stage))
        web.is_down = False
        await stage.world.sleep(10)
        assert await is_let_in(stage, token(stage))

    played(scene, before=with_web(web), **SETTINGS)


def test_keys_may_be_in_a_file() -> None:
    async def scene(stage: Stage) -> None:
        disk = stage.host.runtime.disk
        disk.write_atomic("/keys.json", jwks("one"))
        assert await is_let_in(stage, token(stage))
        disk.write_atomic("/keys.json", b" " * (limits.JWKS_BYTES_MAX + 1))
        await stage.world.sleep(3601)
        assert await is_let_in(stage, token(stage)), "of a file that is too large nothing is taken"

    played(scene, **(SETTINGS | {"sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json"}))


def test_a_session_ends_with_its_token() -> None:
    async def scene(stage: Stage) -> None:
        client, answer = await sent(stage, token(stage, lifetime_s=100))
        assert 98_000 < answer.session_lifetime.total_seconds() * 1000 <= 100_000
        await stage.world.sleep(90)
        assert (await client.metadata()).brokers
        await client.handshake("OAUTHBEARER")
        again = await client.authenticate(f"n,,\x01auth=Bearer {token(stage)}\x01\x01".encode())
        assert again.error_code is ErrorCode.none
        await stage.world.sleep(500)
        assert (await client.metadata()).brokers
        await stage.world.sleep(110)
        with pytest.raises(Gone):
            await client.metadata()

    played(scene, before=with_web(Web("one")), **SETTINGS)


def test_nobody_becomes_another_user_by_another_token() -> None:
    async def scene(stage: Stage) -> None:
        client, _ = await sent(stage, token(stage))
        await client.handshake("OAUTHBEARER")
        answer = await client.authenticate(f"n,,\x01auth=Bearer {token(stage, sub='bob')}\x01\x01".encode())
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert await client.ended()

    played(scene, before=with_web(Web("one")), **SETTINGS)


def test_a_client_that_goes_while_keys_are_fetched_is_forgotten() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.handshake("OAUTHBEARER")
        text = token(stage)
        asking = stage.world.hosts["client"].runtime.tasks.spawn(
            client.authenticate(f"n,,\x01auth=Bearer {text}\x01\x01".encode()), name="ask"
        )
        await stage.world.sleep(0.0005)
        client.close()
        asking.cancel()
        await stage.world.sleep(1)
        broker: Broker = stage.broker
        assert broker.metrics.authentications == 0
        assert await is_let_in(stage, text)

    played(scene, before=with_web(Web("one")), **SETTINGS)


def test_checking_a_token_holds_the_loop_for_less_than_a_few_milliseconds() -> None:
    """The largest that fits, and one that is nothing but a number."""
    from moldau.config.sasl import TokenSettings
    from moldau.security.sasl.exchange import Refused
    from moldau.security.sasl.tokens import identity_in, parse_keys

    keys = parse_keys(jwks("one", "two"))
    settings = TokenSettings(URL, 1, 1, 1, (), None, 0, "sub", "scope")
    large = jwt.encode({"x": "y" * 40_000}, KEYS["one"], algorithm="ES256", headers={"kid": "one"})
    deep = jwt.encode({}, KEYS["one"], algorithm="ES256", headers={"x": [[1] * 100] * 100})
    for text in (large, deep, "a." * 30_000, "." * 60_000):
        best_s = 1.0
        for _ in range(5):
            began_s = time.perf_counter()
            with pytest.raises(Refused):
                identity_in(text, keys, settings, 1_800_000_000_000)
            best_s = min(best_s, time.perf_counter() - began_s)
        assert best_s < 0.005
