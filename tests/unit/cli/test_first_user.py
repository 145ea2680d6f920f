"""The first user: made by whoever is the controller, waited for by the others, and left alone where it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.errors import CliError, Exit
from moldau.cli.first_user import FirstUser, see_to_first_user
from moldau.controller.users import Upsertion, UserOutcome
from moldau.security.sasl.credentials import Credential, Mechanism

PASSWORD = "a secret"


class Cluster:
    """As much of a broker and of a controller as the first user needs."""

    def __init__(self, *, failures: int = 0, refusal: str = "") -> None:
        self.users: dict[str, dict[str, str]] = {}
        self.image = self
        self.asked: list[Upsertion] = []
        self.failures = failures
        self.refusal = refusal
        self.active_controller: Cluster | None = self

    def configs_of(self, _type: object) -> dict[str, dict[str, str]]:
        return self.users

    async def alter_users(self, _deletions: object, upsertions: Sequence[Upsertion]) -> list[UserOutcome]:
        self.asked += upsertions
        if self.failures:
            self.failures -= 1
            raise KafkaError(ErrorCode.not_controller, "another is")
        for one in upsertions:
            if self.refusal:
                return [UserOutcome(one.user, ErrorCode.unacceptable_credential, self.refusal)]
            self.users.setdefault(one.user, {})[str(one.mechanism)] = "..."
        return [UserOutcome(one.user, ErrorCode.none, None) for one in upsertions]


def see_to(cluster: Any, folder: Path, *beside: Any) -> None:
    (folder / "password").write_text(PASSWORD + "\n")
    user = FirstUser("admin", str(folder / "password"))

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(see_to_first_user(cluster, user), *beside), 10)

    asyncio.run(main())


def test_the_controller_makes_it_for_each_mechanism_with_the_password_of_the_file(tmp_path: Path) -> None:
    cluster = Cluster()
    see_to(cluster, tmp_path)
    assert {one.mechanism for one in cluster.asked} == set(Mechanism)
    for one in cluster.asked:
        mechanism = Mechanism(one.mechanism)
        expected = Credential.of_password(mechanism, PASSWORD, one.salt, one.iterations)
        assert Credential.of_salted(mechanism, one.salted_password, one.salt, one.iterations) == expected
    assert len({one.salt for one in cluster.asked}) == 2 and PASSWORD not in repr(cluster.asked)


def test_a_user_who_is_there_keeps_the_password(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.users["admin"] = {"SCRAM-SHA-256": "its own", "SCRAM-SHA-512": "its own"}
    see_to(cluster, tmp_path)
    assert cluster.asked == []


def test_who_is_not_the_controller_waits_for_it(tmp_path: Path) -> None:
    cluster = Cluster()
    other = SimpleNamespace(image=cluster, active_controller=None)

    async def controller() -> None:
        await asyncio.sleep(0.1)
        assert cluster.asked == []
        await see_to_first_user(cluster, FirstUser("admin", str(tmp_path / "password")))  # type: ignore[arg-type]

    see_to(other, tmp_path, controller())
    assert len(cluster.asked) == 2


def test_a_controller_that_is_one_no_more_is_no_failure(tmp_path: Path) -> None:
    cluster = Cluster(failures=2)
    see_to(cluster, tmp_path)
    assert len(cluster.users["admin"]) == 2


def test_a_refusal_is_one_sentence_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="The user admin cannot be made: too many users") as refused:
        see_to(Cluster(refusal="too many users"), tmp_path)
    assert refused.value.code is Exit.CANNOT_START and PASSWORD not in refused.value.message
