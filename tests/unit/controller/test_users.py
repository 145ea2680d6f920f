"""SCRAM users: what AlterUserScramCredentials changes, with the errors and texts of Kafka's ScramControlManager."""

from __future__ import annotations

import pytest

from moldau.base import limits
from moldau.base.errors import ErrorCode
from moldau.controller.news import _line
from moldau.controller.users import TWICE, Deletion, Upsertion, UserOutcome, decide_alter_users
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigChanged, ResourceType
from moldau.runtime.line import whole
from moldau.security.sasl import DECOYS
from moldau.security.sasl.credentials import Credential, Decoys, Mechanism, credential_of

SHA_256, SHA_512 = Mechanism
SECRET = b"s" * 32


def upsertion(
    user: str = "alice",
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salt: bytes = b"salt",
    size: int | None = None,
) -> Upsertion:
    size = size if size is not None else 64 if mechanism == SHA_512 else 32
    return Upsertion(user, mechanism, iterations, salt, b"p" * size)


class Cluster:
    def __init__(self) -> None:
        self.image = ClusterImage("cluster")
        self.records: list[ConfigChanged] = []
        self.news: list[str | None] = []

    def alter(self, deletions: list[Deletion], upsertions: list[Upsertion]) -> list[UserOutcome]:
        outcomes, self.records = whole(decide_alter_users(self.image, deletions, upsertions, SECRET))
        self.news = [_line(self.image, record) for record in self.records]
        for record in self.records:
            self.image.apply(record)
        return outcomes

    @property
    def users(self) -> set[str]:
        return set(self.image.configs_of(ResourceType.USER)) - {DECOYS}


def test_a_user_has_a_credential_for_each_mechanism() -> None:
    cluster = Cluster()
    assert cluster.alter([], [upsertion()]) == [("alice", ErrorCode.none, None)]
    assert cluster.alter([], [upsertion(mechanism=SHA_512, iterations=8192)]) == [
        ("alice", ErrorCode.none, None)
    ]
    users = cluster.image.configs_of(ResourceType.USER)
    one, other = (credential_of(users, "alice", mechanism) for mechanism in Mechanism)
    assert one is not None and other is not None
    assert (one.iterations, other.iterations) == (4096, 8192)
    assert one == Credential.of_salted(SHA_256, b"p" * 32, b"salt", 4096)
    cluster.alter([Deletion("alice", SHA_256)], [])
    assert credential_of(users, "alice", SHA_256) is None
    cluster.alter([Deletion("alice", SHA_512)], [])
    assert not cluster.users


REFUSED = {
    "no name": (upsertion(""), "Username must not be empty", ErrorCode.unacceptable_credential),
    "no mechanism": (upsertion(mechanism=0), "Unknown SCRAM mechanism", ErrorCode.unsupported_sasl_mechanism),
    "another": (upsertion(mechanism=3), "Unknown SCRAM mechanism", ErrorCode.unsupported_sasl_mechanism),
    "few iterations": (upsertion(iterations=4095), "Too few iterations", ErrorCode.unacceptable_credential),
    "negative": (upsertion(iterations=-1), "Too few iterations", ErrorCode.unacceptable_credential),
    "many iterations": (
        upsertion(iterations=16385),
        "Too many iterations",
        ErrorCode.unacceptable_credential,
    ),
    "no salt": (upsertion(salt=b""), "A salt has 1 to", ErrorCode.unacceptable_credential),
    "much salt": (upsertion(salt=b"s" * 1025), "A salt has 1 to", ErrorCode.unacceptable_credential),
    "a password": (upsertion(size=8), "has 32 bytes", ErrorCode.unacceptable_credential),
    "a long name": (upsertion("a" * 1001), "up to 1000 letters", ErrorCode.unacceptable_credential),
    "the secret's name": (upsertion(DECOYS), "no NUL", ErrorCode.unacceptable_credential),
    "nobody": (Deletion("bob", SHA_256), "does not exist", ErrorCode.resource_not_found),
    "not by that": (Deletion("alice", SHA_512), "does not exist", ErrorCode.resource_not_found),
    "deleting the secret": (Deletion(DECOYS, SHA_256), "does not exist", ErrorCode.resource_not_found),
    "deleting no name": (Deletion("", SHA_256), "Username must not", ErrorCode.unacceptable_credential),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(what: str) -> None:
    change, text, code = REFUSED[what]
    cluster = Cluster()
    cluster.alter([], [upsertion()])
    deletions, upsertions = ([change], []) if isinstance(change, Deletion) else ([], [change])
    (outcome,) = cluster.alter(deletions, upsertions)
    assert outcome.error is code and text in (outcome.message or "")
    assert not cluster.records and cluster.users == {"alice"}


def test_a_user_is_named_once_in_a_request() -> None:
    cluster = Cluster()
    cluster.alter([], [upsertion()])
    outcomes = cluster.alter(
        [Deletion("alice", SHA_256)],
        [
            upsertion("alice"),
            upsertion("bob"),
            upsertion("bob", SHA_512),
            upsertion("carol"),
            upsertion("alice"),
        ],
    )
    assert outcomes == [
        ("carol", ErrorCode.none, None),
        ("alice", ErrorCode.duplicate_resource, TWICE),
        ("bob", ErrorCode.duplicate_resource, TWICE),
    ]
    assert cluster.users == {"alice", "carol"}


def test_users_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.controller.users.USERS_MAX", 2)
    cluster = Cluster()
    outcomes = cluster.alter([], [upsertion(name) for name in "abc"])
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unacceptable_credential,
    ]
    assert not cluster.alter([], [upsertion("a", SHA_512)])[0].error, "who is there may have a new password"


def test_the_first_user_comes_with_a_secret_for_names_that_nobody_has() -> None:
    cluster = Cluster()
    cluster.alter([], [upsertion()])
    users = cluster.image.configs_of(ResourceType.USER)
    of_nobody = Decoys.of(users, b"x" * 32).of_name("nobody", SHA_512)
    assert of_nobody == Decoys.of(users, b"y" * 32).of_name("nobody", SHA_512)
    assert of_nobody.salt != Decoys.of(users, b"").of_name("somebody", SHA_512).salt
    secret = users[DECOYS]
    cluster.alter([], [upsertion("bob")])
    assert users[DECOYS] == secret, "it stays"
    assert credential_of(users, DECOYS, SHA_256) is None


def test_the_log_says_who_is_changed_and_nothing_of_the_keys() -> None:
    cluster = Cluster()
    cluster.alter([], [upsertion()])
    assert cluster.news == [None, "credentials of user alice are changed: SCRAM-SHA-256 is set"]
    cluster.alter([Deletion("alice", SHA_256)], [])
    assert cluster.news == ["credentials of user alice are changed: SCRAM-SHA-256 is removed"]


def test_a_hundred_thousand_changes_leave_turns_for_others() -> None:
    names = [upsertion(str(number)) for number in range(2_000)]
    work = decide_alter_users(ClusterImage("cluster"), [], names, SECRET)
    assert sum(1 for _ in work) >= len(names) // 500 - 1
    assert limits.USERS_MAX == 100_000
