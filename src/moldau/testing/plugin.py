"""Fixtures for projects that use Kafka: a cluster in the process of the tests. They come with the package.

- `moldau_cluster` (session): a running `moldau.testing.Cluster`; started when a test first asks for it.
- `moldau_bootstrap_servers` (session): its address.
- `moldau_topic`: the name of a fresh topic for each test, with one partition, or as `@pytest.mark.moldau_topic(3)` or
  `@pytest.mark.moldau_topic(partitions=3, config={"cleanup.policy": "compact"})` says.
- `moldau_config` (session): broker settings; a project overrides it in its conftest.py.
- `moldau_brokers` (session): how many brokers the cluster has, 1; overridden in the same way.
- `moldau_secure` (session): whether clients come in by TLS and a password, False; overridden in the same way.
- `moldau_client_settings` (session): what a client of confluent-kafka is given for it, secure or not.
- `moldau_cluster_of`: starts a cluster of so many brokers for one test, to be killed and cut at will:
  `cluster = moldau_cluster_of(3, topics={"orders": 1})`.

pytest imports this module in every run, so it imports nothing of Moldau before a fixture is used. Of who brings a
plugin it takes all packages for tests: it would parse and rewrite hundreds of modules when the cluster is first
imported, past the bytecode that is installed with them. `AsTheyAre` keeps it from that.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from moldau.testing.cluster import Cluster

NAME_MAX = 200  # Kafka allows 249 characters; the number at the end needs some
PACKAGES = ("moldau.", "pyspark_moldau")
_numbers = itertools.count(1)


class AsTheyAre(MetaPathFinder):
    """Finds our modules as Python does, before pytest's import hook is asked."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith(PACKAGES) else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """The first hook that is called, before a conftest.py can import the cluster."""
    finder = AsTheyAre()
    sys.meta_path.insert(0, finder)

    def remove() -> None:
        if finder in sys.meta_path:  # a test may have put back a list of its own
            sys.meta_path.remove(finder)

    early_config.add_cleanup(remove)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "moldau_topic(partitions=1, config=None): how the topic of the `moldau_topic` fixture is made",
    )


@pytest.fixture(scope="session")
def moldau_config() -> dict[str, Any]:
    """Broker settings by Kafka's names; override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def moldau_brokers() -> int:
    """How many brokers the session's cluster has; override this fixture to change it."""
    return 1


@pytest.fixture(scope="session")
def moldau_secure() -> bool:
    """Whether clients of the session's cluster need TLS and a password; override this fixture to change it."""
    return False


@pytest.fixture(scope="session")
def moldau_cluster(
    moldau_brokers: int, moldau_config: dict[str, Any], moldau_secure: bool
) -> Iterator[Cluster]:
    """A running cluster, shared by the tests of the session."""
    from moldau.testing.cluster import Cluster

    with Cluster(brokers=moldau_brokers, config=moldau_config, secure=moldau_secure) as cluster:
        yield cluster


@pytest.fixture
def moldau_cluster_of() -> Iterator[Callable[..., Cluster]]:
    """Starts a cluster for this test: `moldau_cluster_of(3)`, with the options of `Cluster` behind the number."""
    from moldau.testing.cluster import Cluster

    with contextlib.ExitStack() as running:

        def start(brokers: int = 3, **options: Any) -> Cluster:
            return running.enter_context(Cluster(brokers=brokers, **options))

        yield start


@pytest.fixture(scope="session")
def moldau_bootstrap_servers(moldau_cluster: Cluster) -> str:
    """The cluster's address, for `bootstrap.servers` of any Kafka client."""
    return moldau_cluster.bootstrap_servers


@pytest.fixture(scope="session")
def moldau_client_settings(moldau_cluster: Cluster) -> dict[str, Any]:
    """For a client of confluent-kafka, or another one that is librdkafka's."""
    return moldau_cluster.client_settings()


@pytest.fixture
def moldau_topic(request: pytest.FixtureRequest, moldau_cluster: Cluster) -> str:
    """The name of a topic that no other test uses; it exists already."""
    marker = request.node.get_closest_marker("moldau_topic")
    args, options = (marker.args, marker.kwargs) if marker else ((), {})
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-.") or "test"
    name = f"{readable[:NAME_MAX]}-{next(_numbers)}"
    moldau_cluster.create_topic(name, *args, **options)
    return name
