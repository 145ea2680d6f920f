"""Whom a token of OAUTHBEARER names: a JWT, checked against the keys of a JWKS (RFC 7515, 7517, 7519). Pure.

The checks are those of Kafka's BrokerJwtValidator: signature, expiry and time of issue (both must be there), "not
before", issuer, audience, and a name. PyJWT and cryptography do the signature; the clock comes in.

Only keys that are public by nature count (RSA from 2048 bits on, EC, Ed25519), each with the algorithms of its own
kind: a token cannot choose another, `none` least of all. Secrets in a JWKS are left out, and so are tokens with
headers that must be understood (`crit`).

Unsigned tokens are read where the settings ask for them: Kafka's OAuthBearerUnsecuredJws, for development.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from moldau.base.limits import TOKEN_KEYS_MAX, TOKEN_KEYS_TRIED_MAX
from moldau.config.sasl import TokenSettings
from moldau.security.sasl.exchange import Identity, Refused

RSA_BITS_MIN = 2048
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
NAME_LETTERS_MAX = 1_000
SECONDS_MAX = 253_402_300_799
"""The end of the year 9999."""


class UnknownKey(Refused):
    """The token is signed with a key that is not among these: there may be newer ones."""


class TokenKey(NamedTuple):
    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any

    def __repr__(self) -> str:
        return f"TokenKey({self.key_id!r}, {self.algorithms!r})"


def parse_keys(text: bytes) -> list[TokenKey]:
    """Those of a JWKS that can be used. ValueError where it is none."""
    plain = json.loads(text)
    items = plain.get("keys") if isinstance(plain, dict) else None
    if not isinstance(items, list):
        raise ValueError("not a JWKS")
    found = (_key_of(item) for item in items[:TOKEN_KEYS_MAX] if isinstance(item, dict))
    return [key for key in found if key is not None]


def _key_of(item: Mapping[str, Any]) -> TokenKey | None:
    """None for what cannot be used."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from jwt import PyJWK, PyJWTError

    if item.get("use", "sig") != "sig" or item.get("kty") not in ("RSA", "EC", "OKP") or "d" in item:
        return None
    try:
        key = PyJWK(dict(item)).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms: tuple[str, ...] = ()
    if isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN:
        algorithms = _RSA
    elif isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVES:
        algorithms = (_CURVES[key.curve.name],)
    elif isinstance(key, Ed25519PublicKey):
        algorithms = ("EdDSA",)
    if "alg" in item:
        algorithms = tuple(name for name in algorithms if name == item["alg"])
    key_id = item.get("kid")
    return TokenKey(key_id if isinstance(key_id, str) else None, algorithms, key) if algorithms else None


def identity_in(token: str, keys: Sequence[TokenKey], settings: TokenSettings, now_ms: int) -> Identity:
    """Whom a signed token names; Refused where it names nobody, UnknownKey where other keys may help."""
    header = _part(token, 0)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if "crit" in header or not isinstance(algorithm, str):
        raise Refused("a token with a header that is not understood")
    fitting = [key for key in keys if key_id is None or key.key_id == key_id]
    if not fitting:
        raise UnknownKey("a token that is signed with an unknown key")
    for key in [key for key in fitting if algorithm in key.algorithms][:TOKEN_KEYS_TRIED_MAX]:
        if _is_signed(token, key, algorithm):
            return _identity(_part(token, 1), settings, now_ms)
    raise Refused("a token whose signature is not right")


def _is_signed(token: str, key: TokenKey, algorithm: str) -> bool:
    from jwt import PyJWS, PyJWTError

    try:
        PyJWS().decode(token, key.key, algorithms=[algorithm])
    except (PyJWTError, ValueError, TypeError):
        return False
    return True


def unsigned_identity_in(token: str, settings: TokenSettings, now_ms: int) -> Identity:
    """Whom an unsigned token names. Anybody can make one."""
    if token.count(".") != 2 or not token.endswith("."):
        raise Refused("not an unsigned token")
    if _part(token, 0).get("alg") != "none":
        raise Refused("not an unsigned token")
    claims = _part(token, 1)
    scopes = claims.get(settings.scope_claim, [])
    if isinstance(scopes, str):
        scopes = scopes.split()
    if not isinstance(scopes, list) or not set(settings.scopes) <= {s for s in scopes if isinstance(s, str)}:
        raise Refused("a token without the scopes that are required")
    return _named(claims, settings, now_ms)


def _identity(claims: Mapping[str, Any], settings: TokenSettings, now_ms: int) -> Identity:
    issued_s, expires_s = _seconds(claims, "iat"), _seconds(claims, "exp")
    if issued_s is None:
        raise Refused("a token that does not say when it was issued")
    if expires_s is not None and expires_s < max(issued_s, _seconds(claims, "nbf") or 0):
        raise Refused("a token that has expired before it was issued, or valid")
    if settings.issuer is not None and claims.get("iss") != settings.issuer:
        raise Refused("a token of another issuer")
    audience = claims.get("aud", [])
    named = [audience] if isinstance(audience, str) else audience
    if not isinstance(named, list) or bool(named) != bool(settings.audience):
        raise Refused("a token for another audience")
    if named and not any(one in settings.audience for one in named):
        raise Refused("a token for another audience")
    return _named(claims, settings, now_ms)


def _named(claims: Mapping[str, Any], settings: TokenSettings, now_ms: int) -> Identity:
    expires_s, begins_s = _seconds(claims, "exp"), _seconds(claims, "nbf")
    if expires_s is None:
        raise Refused("a token that does not say when it expires")
    if now_ms - settings.skew_ms >= expires_s * 1000:
        raise Refused("a token that has expired")
    if begins_s is not None and now_ms + settings.skew_ms < begins_s * 1000:
        raise Refused("a token that is not valid yet")
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_LETTERS_MAX:
        raise Refused(f"a token without a name in the claim {settings.name_claim}")
    return Identity(name.strip(), int(expires_s * 1000))


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
        raise Refused(f"a token whose {name} is no time")
    return value


def _part(token: str, index: int) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        raise Refused("a token that is no JWT")
    text = parts[index]
    try:
        plain = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise Refused("a token that is no JWT") from None
    if not isinstance(plain, dict):
        raise Refused("a token that is no JWT")
    return plain
