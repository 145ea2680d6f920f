"""Decisions on SCRAM users: what AlterUserScramCredentials does, with the checks and texts of Kafka's
ScramControlManager. Pure.

A user can be named once in a request, whatever the mechanism. Beyond Kafka's checks a salted password has the length
that its mechanism gives it, and names, salts and users are bounded.

The first user comes with a secret for all names that nobody has (`security.sasl.credentials.Decoys`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import SCRAM_SALT_BYTES_MAX, USER_NAME_LETTERS_MAX, USERS_MAX
from moldau.controller.slices import Portion, Slices
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigChanged, ConfigResource, ResourceType
from moldau.security.sasl import DECOYS
from moldau.security.sasl.credentials import (
    DECOY_SECRET,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    Credential,
    Mechanism,
)
from moldau.security.sasl.credentials import (
    SECRET_BYTES as SECRET_BYTES,
)

MECHANISM_NUMBERS = frozenset(map(int, Mechanism))
CHANGE_WEIGHT = 4
"""Of partitions, which are what a slice is measured in: the keys of a password take some 20 us."""
TWICE = "A user credential cannot be altered twice in the same request"


class Deletion(NamedTuple):
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """The password of a user is new, as the client has salted it."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class UserOutcome(NamedTuple):
    user: str
    error: ErrorCode
    message: str | None


Users = dict[str, dict[str, str]]
"""What changes, by the user's name."""


def decide_alter_users(
    image: ClusterImage, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], secret: bytes
) -> Slices[tuple[list[UserOutcome], list[ConfigChanged]]]:
    """What is said of each user that is named, and what changes."""
    known = image.configs_of(ResourceType.USER)
    room = USERS_MAX - len(known) + (DECOYS in known)
    changed: Users = {}
    errors: dict[str, KafkaError] = {}
    portion = Portion()
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for one in changes:
        if portion.take(CHANGE_WEIGHT):
            yield
        if one.user in errors:
            continue
        try:
            if changed.pop(one.user, None) is not None:
                raise KafkaError(ErrorCode.duplicate_resource, TWICE)
            mechanism = _checked(one)
            own = dict(known.get(one.user, {}))
            if isinstance(one, Deletion):
                if own.pop(mechanism.title, None) is None:
                    raise KafkaError(
                        ErrorCode.resource_not_found,
                        "Attempt to delete a user credential that does not exist",
                    )
            else:
                if one.user not in known:
                    if room <= 0:
                        raise _unacceptable(f"There are {USERS_MAX} users, which is as many as may be")
                    room -= 1
                own[mechanism.title] = _credential(one, mechanism).text
            changed[one.user] = own
        except KafkaError as error:
            errors[one.user] = error
    outcomes = [UserOutcome(user, ErrorCode.none, None) for user in changed]
    outcomes += [UserOutcome(user, error.code, error.message) for user, error in errors.items()]
    return outcomes, _records(image, changed, secret)


def _checked(one: Deletion | Upsertion) -> Mechanism:
    """The mechanism, where the change can be made."""
    if not one.user:
        raise _unacceptable("Username must not be empty")
    if one.mechanism not in MECHANISM_NUMBERS:
        raise KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if isinstance(one, Upsertion):
        if one.iterations < ITERATIONS_MIN:
            raise _unacceptable("Too few iterations")
        if one.iterations > ITERATIONS_MAX:
            raise _unacceptable("Too many iterations")
        if len(one.user) > USER_NAME_LETTERS_MAX or "\0" in one.user:
            raise _unacceptable(f"A username has up to {USER_NAME_LETTERS_MAX} letters, and no NUL")
        if not 0 < len(one.salt) <= SCRAM_SALT_BYTES_MAX:
            raise _unacceptable(f"A salt has 1 to {SCRAM_SALT_BYTES_MAX} bytes")
    return Mechanism(one.mechanism)


def _credential(one: Upsertion, mechanism: Mechanism) -> Credential:
    if len(one.salted_password) != mechanism.hash_bytes:
        raise _unacceptable(f"The salted password of {mechanism.title} has {mechanism.hash_bytes} bytes")
    return Credential.of_salted(mechanism, one.salted_password, one.salt, one.iterations)


def _records(image: ClusterImage, changed: Users, secret: bytes) -> list[ConfigChanged]:
    records = [_record(user, own) for user, own in changed.items()]
    if any(changed.values()) and DECOYS not in image.configs_of(ResourceType.USER):
        records.insert(0, decoy_record(secret))
    return records


def decoy_record(secret: bytes) -> ConfigChanged:
    return _record(DECOYS, {DECOY_SECRET: b64encode(secret).decode()})


def _record(user: str, own: dict[str, str]) -> ConfigChanged:
    return ConfigChanged(ConfigResource(ResourceType.USER, user), own)


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.unacceptable_credential, message)
