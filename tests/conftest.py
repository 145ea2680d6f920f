"""Which broker the tests of `interop`, `cluster` and `examples` run against, and what they need from this machine.

`--target moldau` (the default) starts `moldau up`; `--target kafka` starts Apache Kafka, whose behaviour is
the measure; `--target HOST:PORT` uses a broker that runs already. A foreign tool that is missing skips the
tests that need it with a sentence, but fails them where CI=true: there none may be left out.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.apache_kafka import Distribution, KafkaServer, distribution
from bench.server import MoldauServer, Server
from moldau.runtime.real.java import Unavailable
from needs import missing


def pytest_configure() -> None:
    # A shell starts what runs in the background with SIGINT ignored, and commands under test would inherit that.
    # SIGTERM is to end a run like Ctrl-C, with the brokers that it has started.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Under nohup it is ignored: as little happens here now, but commands under test can be hung up.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("moldau")
    group.addoption(
        "--target", default="moldau", metavar="moldau|kafka|HOST:PORT", help="the broker under test"
    )
    group.addoption("--seed", type=int, default=None, help="replay a seeded test (kill -9 loop, fuzzer)")


@pytest.fixture(scope="session")
def requires_kafka() -> Distribution:
    """Java and Apache Kafka's jars."""
    try:
        return distribution()
    except Unavailable as reason:
        missing(str(reason))


@pytest.fixture(scope="session")
def requires_kcat() -> str:
    kcat = shutil.which("kcat")
    if kcat is None:
        missing("There is no `kcat` here; Debian and Ubuntu have it as a package, and so has Homebrew.")
    return kcat


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of the broker under test, one for the whole run."""
    wanted: str = request.config.getoption("--target")
    folder: Path = tmp_path_factory.mktemp("broker")
    match wanted:
        case "moldau":
            with MoldauServer(folder) as server:
                yield server.bootstrap_servers
        case "kafka":
            request.getfixturevalue("requires_kafka")
            with KafkaServer(folder) as server:
                yield server.bootstrap_servers
        case address:
            yield address


@pytest.fixture
def new_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Make a broker of the target's kind, not yet started, in a folder of its own."""
    wanted = request.config.getoption("--target")
    if wanted not in ("moldau", "kafka"):
        pytest.skip("This test starts and kills brokers of its own: it takes no address as --target.")
    if wanted == "kafka":
        request.getfixturevalue("requires_kafka")
    kind = MoldauServer if wanted == "moldau" else KafkaServer
    made: list[Server] = []
    numbers = itertools.count(1)

    def make(**settings: object) -> Server:
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        server = kind(tmp_path / f"broker-{next(numbers)}", dotted)
        made.append(server)
        return server

    yield make
    for server in made:
        server.kill()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """A test's own fixed seed, or what `--seed` says. It is printed, so that a failure shows it."""

    def choose(usual: int) -> int:
        asked = request.config.getoption("--seed")
        chosen = usual if asked is None else int(asked)
        print(f"seed {chosen}: replay with --seed {chosen}")
        return chosen

    return choose


@pytest.fixture(scope="session")
def topic_names() -> Callable[[str], str]:
    """Names that no other run on the same broker uses."""
    run = secrets.token_hex(3)
    return lambda label: f"it-{run}-{label}"
