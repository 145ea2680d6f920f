"""Fixtures of the client matrix: one adapter of each client for the whole run, made at its first use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from interop.clients import CLIENTS, Client
from interop.clients.confluent import Confluent

NEEDS = {"kcat": "requires_kcat", "java-tools": "requires_kafka"}


@pytest.fixture(scope="session")
def clients(request: pytest.FixtureRequest, target: str) -> Callable[[str], Client]:
    made: dict[str, Client] = {}

    def client(name: str) -> Client:
        if name in NEEDS:
            request.getfixturevalue(NEEDS[name])
        return made.setdefault(name, CLIENTS[name](target))

    return client


@pytest.fixture
def client(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    """The client of a parametrized case."""
    return clients(request.param)


@pytest.fixture(scope="session")
def new_topic(target: str, topic_names: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Create a topic of its own for a test; all are deleted at the end."""
    reference = Confluent(target)
    numbers = itertools.count()
    created: list[str] = []

    def create(label: str, *, partitions: int = 1, **configs: str) -> str:
        name = topic_names(f"{label}-{next(numbers)}")
        reference.create(
            name,
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        created.append(name)
        return name

    yield create
    for name in created:
        reference.delete(name)
