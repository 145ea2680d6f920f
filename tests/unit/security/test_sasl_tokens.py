"""Tokens of OAUTHBEARER: whom they name, and a table of those that name nobody."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from moldau.base import limits
from moldau.config.sasl import TokenSettings
from moldau.security.sasl.exchange import Identity, Refused, TokenToCheck
from moldau.security.sasl.oauthbearer import INVALID_TOKEN, UNDERSTOOD, OAuthBearerExchange
from moldau.security.sasl.tokens import UnknownKey, identity_in, parse_keys, unsigned_identity_in

NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000
SETTINGS = TokenSettings("https://x", 1, 1, 1, ("brokers", "others"), "issuer", 30_000, "sub", "scope")
CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 600, "iss": "issuer", "aud": "brokers"}

RSA = rsa.generate_private_key(65537, 2048)
WEAK = rsa.generate_private_key(65537, 1024)
STRANGER = rsa.generate_private_key(65537, 2048)
P256, P384 = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(kind: Any, key: Any, **more: Any) -> dict[str, Any]:
    return json.loads(kind.to_jwk(key)) | more


OTHER = rsa.generate_private_key(65537, 2048)
JWKS = {
    "keys": [
        jwk(jwt.algorithms.RSAAlgorithm, OTHER.public_key(), kid="for-rs256", alg="RS256"),
        jwk(jwt.algorithms.RSAAlgorithm, RSA.public_key(), kid="rsa", use="sig"),
        jwk(jwt.algorithms.RSAAlgorithm, WEAK.public_key(), kid="weak"),
        jwk(jwt.algorithms.ECAlgorithm, P256.public_key(), kid="p256"),
        jwk(jwt.algorithms.ECAlgorithm, P384.public_key(), kid="p384"),
        jwk(jwt.algorithms.OKPAlgorithm, ED.public_key(), kid="ed"),
        jwk(jwt.algorithms.RSAAlgorithm, STRANGER.public_key(), kid="enc", use="enc"),
        jwk(jwt.algorithms.RSAAlgorithm, STRANGER, kid="private"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "oct", "alg": "HS256"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "?"},
        "nonsense",
    ]
}
KEYS = parse_keys(json.dumps(JWKS).encode())
PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
    said = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(said, key, algorithm=algorithm, headers={} if kid is None else {"kid": kid})


def by_hand(
    header: dict[str, Any], claims: Any = None, sign: Callable[[bytes], bytes] = lambda _: b""
) -> str:
    parts = (json.dumps(part).encode() for part in (header, CLAIMS if claims is None else claims))
    body = ".".join(map(b64, parts))
    return f"{body}.{b64(sign(body.encode()))}"


def hmac_with(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda body: hmac.digest(secret, body, hashlib.sha256)


def test_of_a_jwks_only_public_keys_for_signatures_count() -> None:
    assert [key.key_id for key in KEYS] == ["for-rs256", "rsa", "p256", "p384", "ed"]
    assert "object at" not in repr(KEYS)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": 1}', b"\xff"])
def test_what_is_no_jwks_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_keys(text)


GOOD = {
    "RS256": signed,
    "RS512": lambda: signed(algorithm="RS512"),
    "PS256": lambda: signed(algorithm="PS256"),
    "ES256": lambda: signed(P256, "ES256", "p256"),
    "ES384": lambda: signed(P384, "ES384", "p384"),
    "EdDSA": lambda: signed(ED, "EdDSA", "ed"),
    "no key id": lambda: signed(kid=None),
    "several audiences": lambda: signed(aud=["x", "others"]),
    "expired within the skew": lambda: signed(exp=NOW_S - 29, iat=NOW_S - 600),
    "valid soon, within the skew": lambda: signed(nbf=NOW_S + 29),
    "a fraction of a second": lambda: signed(exp=NOW_S + 600.5),
}


@pytest.mark.parametrize("what", GOOD)
def test_a_good_token_names_somebody(what: str) -> None:
    identity = identity_in(GOOD[what](), KEYS, SETTINGS, NOW_MS)
    assert identity.name == "alice"


def test_it_does_so_until_it_expires() -> None:
    assert identity_in(signed(), KEYS, SETTINGS, NOW_MS) == Identity("alice", (NOW_S + 600) * 1000)


BAD = {
    "expired": lambda: signed(exp=NOW_S - 30, iat=NOW_S - 600),
    "expired before it was issued": lambda: signed(exp=NOW_S - 1),
    "expired before it was valid": lambda: signed(exp=NOW_S + 5, nbf=NOW_S + 10),
    "another algorithm than the key is for": lambda: signed(OTHER, "PS256", "for-rs256"),
    "no expiry": lambda: signed(exp=None),
    "an expiry that is a text": lambda: by_hand({"alg": "RS256", "kid": "rsa"}, CLAIMS | {"exp": "soon"}),
    "an expiry without end": lambda: signed(exp=10**30),
    "not issued": lambda: signed(iat=None),
    "not valid yet": lambda: signed(nbf=NOW_S + 31),
    "another issuer": lambda: signed(iss="other"),
    "no issuer": lambda: signed(iss=None),
    "another audience": lambda: signed(aud="other"),
    "no audience": lambda: signed(aud=None),
    "no name": lambda: signed(sub=None),
    "an empty name": lambda: signed(sub=" "),
    "a long name": lambda: signed(sub="a" * 1001),
    "another key": lambda: signed(STRANGER),
    "another key, which is for encryption": lambda: signed(STRANGER, kid="enc"),
    "another key, which should be secret": lambda: signed(STRANGER, kid="private"),
    "a weak key": lambda: signed(WEAK, kid="weak"),
    "a key id that is not there": lambda: signed(kid="other"),
    "unsigned": lambda: by_hand({"alg": "none", "kid": "rsa"}),
    "unsigned, in other letters": lambda: by_hand({"alg": "NONE"}),
    "no algorithm": lambda: by_hand({"kid": "rsa"}),
    "an algorithm that is a list": lambda: by_hand({"alg": ["RS256"], "kid": "rsa"}),
    "a MAC with the public key": lambda: by_hand({"alg": "HS256", "kid": "rsa"}, None, hmac_with(PEM)),
    "a MAC with a secret of the JWKS": lambda: by_hand(
        {"alg": "HS256", "kid": "oct"}, None, hmac_with(b"secret")
    ),
    "an algorithm of another kind of key": lambda: by_hand({"alg": "ES256", "kid": "rsa"}),
    "the wrong curve": lambda: signed(P384, "ES384", "p256"),
    "a header that must be understood": lambda: by_hand({"alg": "RS256", "kid": "rsa", "crit": ["x"]}),
    "its own key in the header": lambda: jwt.encode(
        CLAIMS,
        STRANGER,
        algorithm="RS256",
        headers={"jwk": jwk(jwt.algorithms.RSAAlgorithm, STRANGER.public_key())},
    ),
    "changed claims": lambda: ".".join(
        (signed().split(".")[0], b64(json.dumps(CLAIMS | {"sub": "admin"}).encode()), signed().split(".")[2])
    ),
    "no signature": lambda: signed().rpartition(".")[0] + ".",
    "two parts": lambda: signed().rpartition(".")[0],
    "four parts": lambda: signed() + ".x",
    "claims that are a list": lambda: by_hand({"alg": "RS256", "kid": "rsa"}, [1]),
    "no JSON": lambda: f"{b64(b'{')}.{b64(b'{}')}.x",
    "deep JSON": lambda: f"{b64(b'[' * 10_000)}.{b64(b'{}')}.x",
    "nothing": lambda: "",
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_token_names_nobody(what: str) -> None:
    with pytest.raises(Refused) as refused:
        identity_in(BAD[what](), KEYS, SETTINGS, NOW_MS)
    assert "alice" not in str(refused.value)


def test_only_an_unknown_key_is_worth_looking_for_newer_ones() -> None:
    with pytest.raises(UnknownKey):
        identity_in(signed(kid="new"), KEYS, SETTINGS, NOW_MS)
    with pytest.raises(Refused) as refused:
        identity_in(signed(STRANGER), KEYS, SETTINGS, NOW_MS)
    assert not isinstance(refused.value, UnknownKey)


def test_without_an_expected_audience_a_token_that_names_one_is_refused() -> None:
    settings = TokenSettings("x", 1, 1, 1, (), None, 0, "sub", "scope")
    with pytest.raises(Refused):
        identity_in(signed(), KEYS, settings, NOW_MS)
    assert identity_in(signed(aud=None, iss=None), KEYS, settings, NOW_MS).name == "alice"


# ---- unsigned ones, where they are asked for ------------------------------------------------------------------

UNSIGNED = TokenSettings(None, 1, 1, 1, (), None, 0, "sub", "scope", ("read", "write"))


def test_unsigned_tokens_name_whom_they_say() -> None:
    token = by_hand({"alg": "none"}, CLAIMS | {"scope": "write read more"})
    assert unsigned_identity_in(token, UNSIGNED, NOW_MS).name == "alice"


@pytest.mark.parametrize(
    "token",
    [
        by_hand({"alg": "none"}, CLAIMS | {"scope": "read"}),
        by_hand({"alg": "none"}, CLAIMS | {"scope": 1}),
        by_hand({"alg": "none"}, CLAIMS | {"scope": "read write", "exp": NOW_S}),
        by_hand({"alg": "none"}, {"sub": "alice", "scope": "read write"}),
        by_hand({"alg": "RS256"}, CLAIMS | {"scope": "read write"}),
        signed(scope="read write"),
    ],
)
def test_but_not_those_that_are_expired_or_lack_scopes_or_pretend_to_be_signed(token: str) -> None:
    with pytest.raises(Refused):
        unsigned_identity_in(token, UNSIGNED, NOW_MS)


# ---- the messages ---------------------------------------------------------------------------------------------


def test_a_client_sends_its_token_and_is_let_in() -> None:
    exchange = OAuthBearerExchange()
    assert exchange.answer(b"n,,\x01auth=Bearer abc.def.ghi\x01host=x\x01\x01") == TokenToCheck("abc.def.ghi")
    assert exchange.user is None
    assert exchange.checked(Identity("alice", 5)) == b""
    assert (exchange.user, exchange.expires_ms) == ("alice", 5)


def test_a_client_whose_token_names_nobody_hears_so_twice() -> None:
    exchange = OAuthBearerExchange()
    exchange.answer(b"n,,\x01auth=bearer abc\x01\x01")
    assert exchange.checked(None) == INVALID_TOKEN.encode()
    with pytest.raises(Refused) as refused:
        exchange.answer(UNDERSTOOD)
    assert refused.value.text == INVALID_TOKEN
    assert exchange.user is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer a c\x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer def\x01\x01",
        b"p=x,,\x01auth=Bearer abc\x01\x01",
        b"n,,auth=Bearer abc",
        b"n,,\x01auth=Bearer abc\x01\x01more",
        "n,,\x01auth=Bearer äbc\x01\x01".encode(),
    ],
)
def test_another_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(Refused) as refused:
        OAuthBearerExchange().answer(message)
    assert refused.value.text is None


def test_who_failed_cannot_try_another_token() -> None:
    exchange = OAuthBearerExchange()
    exchange.answer(b"n,,\x01auth=Bearer abc\x01\x01")
    exchange.checked(None)
    with pytest.raises(Refused):
        exchange.answer(b"n,,\x01auth=Bearer def\x01\x01")


def test_another_identity_than_the_tokens_is_refused() -> None:
    exchange = OAuthBearerExchange()
    exchange.answer(b"n,a=admin,\x01auth=Bearer abc\x01\x01")
    with pytest.raises(Refused):
        exchange.checked(Identity("alice", 5))
    assert exchange.user is None
    assert limits.SASL_TOKEN_BYTES_MAX == 64 * 1024
