"""Tokens, and changes of SCRAM users: what Moldau makes of them beside Apache Kafka, byte by byte."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from interop.dialogue import Dialogue
from interop.secured import AUDIENCE, ISSUER, KEY_ID, USER, Papers, SecuredKafka, SecuredMoldau

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-kafka")]

DESCRIBE, ALTER = 50, 51
SHA_256, SHA_512 = 1, 2
SALTED = {SHA_256: b"p" * 32, SHA_512: b"p" * 64}
STRANGER = rsa.generate_private_key(65537, 2048)


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, requires_kafka: Any
) -> Iterator[tuple[SecuredMoldau, SecuredKafka]]:
    folder = tmp_path_factory.mktemp("both")
    papers = Papers(folder / "papers")
    with SecuredMoldau(folder / "moldau", papers) as moldau, SecuredKafka(folder / "kafka", papers) as kafka:
        yield moldau, kafka


# ---- tokens ---------------------------------------------------------------------------------------------------


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(**more: Any) -> dict[str, Any]:
    now_s = int(time.time())
    usual = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 600} | more
    return {name: value for name, value in usual.items() if value is not None}


def signed(papers: Papers, key: Any = None, algorithm: str = "RS256", **more: Any) -> str:
    return jwt.encode(claims(**more), key or papers._token_key, algorithm=algorithm, headers={"kid": KEY_ID})


def by_hand(header: dict[str, Any], sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    body = ".".join(b64(json.dumps(part).encode()) for part in (header, claims()))
    return f"{body}.{b64(sign(body.encode()))}"


def with_public_key(papers: Papers) -> Callable[[bytes], bytes]:
    public = papers._token_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return lambda body: hmac.digest(public, body, hashlib.sha256)


TOKENS: dict[str, Callable[[Papers], str]] = {
    "good": signed,
    "several audiences": lambda papers: signed(papers, aud=["others", AUDIENCE]),
    "expired within the skew": lambda papers: signed(
        papers, exp=int(time.time()) - 20, iat=int(time.time()) - 600
    ),
    "expired before it was issued": lambda papers: signed(papers, exp=int(time.time()) - 20),
    "expired before it was valid": lambda papers: signed(
        papers, exp=int(time.time()) + 5, nbf=int(time.time()) + 10
    ),
    "expired": lambda papers: signed(papers, exp=int(time.time()) - 60),
    "no expiry": lambda papers: signed(papers, exp=None),
    "not issued": lambda papers: signed(papers, iat=None),
    "not valid yet": lambda papers: signed(papers, nbf=int(time.time()) + 600),
    "another issuer": lambda papers: signed(papers, iss="others"),
    "no issuer": lambda papers: signed(papers, iss=None),
    "another audience": lambda papers: signed(papers, aud="others"),
    "no audience": lambda papers: signed(papers, aud=None),
    "no name": lambda papers: signed(papers, sub=None),
    "an empty name": lambda papers: signed(papers, sub=""),
    "scopes in a list": lambda papers: signed(papers, scope=["one", "two"]),
    "scopes in a text": lambda papers: signed(papers, scope="one two"),
    "another key": lambda papers: signed(papers, STRANGER),
    "unsigned": lambda _: by_hand({"alg": "none", "kid": KEY_ID}),
    "a MAC with the public key": lambda papers: by_hand(
        {"alg": "HS256", "kid": KEY_ID}, with_public_key(papers)
    ),
    "no JWT": lambda _: "hello",
    "empty parts": lambda _: "..",
}


@pytest.mark.parametrize("what", TOKENS)
def test_a_token_names_the_same_user_or_nobody(both: tuple[SecuredMoldau, SecuredKafka], what: str) -> None:
    heard = []
    token = TOKENS[what](both[0].doors.papers)
    for server in both:
        with closing(Dialogue(server.doors.ports["SASL_PLAINTEXT"])) as one:
            one.handshake("OAUTHBEARER")
            del one.heard[:]  # the order of mechanisms
            answer = one.authenticate(f"n,,\x01auth=Bearer {token}\x01\x01".encode(), 0)
            if b"invalid_token" in answer:
                one.authenticate(b"\x01")
                one.hear()
            heard.append(one.heard)
    assert heard[0] == heard[1]
    assert (b"invalid_token" in b"".join(filter(bytes.__instancecheck__, heard[0]))) is (what not in LET_IN)


LET_IN = ("good", "several audiences", "expired within the skew", "scopes in a list", "scopes in a text")
MESSAGES = {
    "no scheme": b"n,,\x01auth=abc\x01\x01",
    "nothing": b"",
    "understood, before there was anything": b"\x01",
}


@pytest.mark.parametrize("what", MESSAGES)
def test_a_bad_message_is_answered_the_same(both: tuple[SecuredMoldau, SecuredKafka], what: str) -> None:
    heard = []
    for server in both:
        with closing(Dialogue(server.doors.ports["SASL_PLAINTEXT"])) as one:
            one.handshake("OAUTHBEARER")
            del one.heard[:]
            one.authenticate(MESSAGES[what])
            one.hear()
            heard.append(one.heard)
    assert heard[0] == heard[1]


# ---- users ----------------------------------------------------------------------------------------------------


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> SimpleNamespace:
    salted = SALTED.get(mechanism, b"p")
    return SimpleNamespace(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def deletion(name: str, mechanism: int = SHA_256) -> SimpleNamespace:
    return SimpleNamespace(name=name, mechanism=mechanism)


def alter(one: Dialogue, deletions: list[Any], upsertions: list[Any]) -> None:
    one.request(ALTER, 0, deletions=tuple(deletions), upsertions=tuple(upsertions))


def describe(one: Dialogue, *names: str) -> None:
    users = tuple(SimpleNamespace(name=name) for name in names) if names else None
    one.request(DESCRIBE, 0, users=users)


STORY: tuple[Callable[[Dialogue], None], ...] = (
    describe,
    lambda one: describe(one, "nobody"),
    lambda one: alter(one, [], [upsertion("")]),
    lambda one: alter(one, [], [upsertion("a", 0)]),
    lambda one: alter(one, [], [upsertion("a", 3)]),
    lambda one: alter(one, [], [upsertion("a", -1)]),
    lambda one: alter(one, [], [upsertion("a", SHA_256, 4095)]),
    lambda one: alter(one, [], [upsertion("a", SHA_256, 16385)]),
    lambda one: alter(one, [], [upsertion("a", SHA_256, 0)]),
    lambda one: alter(one, [deletion("a")], []),
    lambda one: alter(one, [deletion("")], []),
    lambda one: alter(one, [deletion("a", 5)], []),
    lambda one: alter(one, [], []),
    lambda one: alter(one, [], [upsertion("a"), upsertion("a", SHA_512)]),
    lambda one: alter(one, [], [upsertion("a")]),
    lambda one: alter(one, [deletion("a")], [upsertion("a")]),
    lambda one: alter(one, [deletion("a"), deletion("a")], []),
    lambda one: alter(one, [deletion("a", SHA_512)], []),
    describe,
    lambda one: describe(one, "a"),
    lambda one: describe(one, "a", "a"),
    lambda one: alter(one, [], [upsertion("a", SHA_512, 8192)]),
    lambda one: describe(one, "a"),
    lambda one: alter(one, [], [upsertion("ünicode")]),
    lambda one: describe(one, "ünicode"),
    lambda one: alter(one, [deletion("a")], []),
    lambda one: describe(one, "a"),
    lambda one: alter(one, [deletion("a", SHA_512)], []),
    lambda one: describe(one, "a"),
)


WITH_TWO = 22
"""A user with two credentials is described: Kafka has them in a hash map of objects, in another order each run."""


def test_users_are_changed_and_described_the_same(both: tuple[SecuredMoldau, SecuredKafka]) -> None:
    heard = []
    for server in both:
        with closing(Dialogue(server.doors.ports["OPEN"])) as one:
            for step in STORY:
                step(one)
                time.sleep(0.2)  # until Kafka's broker has heard of its controller's change
            heard.append(one.heard)
    for number, (ours, theirs) in enumerate(zip(*heard, strict=True)):
        assert ours == theirs or (number == WITH_TWO and sorted(ours) == sorted(theirs)), number
