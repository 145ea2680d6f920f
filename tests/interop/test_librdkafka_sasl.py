"""librdkafka's own tests of SASL, which `make foreign` builds, on three brokers whose sessions last ten seconds.

What they do with share groups is left out: Moldau has none.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreign.librdkafka import SOURCES, Librdkafka, number_of
from foreign.runner import cache_folder
from interop.clients.security import LOGIN_MODULES
from interop.sasl_broker import PASSWORD, USER, SaslBroker, Tokens, run_moldau

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.xdist_group("interop-librdkafka")]

UNSIGNED = f'{LOGIN_MODULES["OAUTHBEARER"]} required unsecuredValidatorAllowableClockSkewMs="3000";'
ITS_TOKENS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=admin scope=requiredScope lifeSeconds=3600",
}
TIMEOUT_S = 200
BUILT = cache_folder() / f"{Librdkafka.name}-{Librdkafka.version}" / SOURCES


@pytest.fixture(scope="module")
def runner() -> Path:
    path = BUILT / "tests" / "test-runner"
    if not path.exists():
        pytest.skip("librdkafka's tests are not built: `make foreign` does it.")
    return path


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, runner: Path) -> Iterator[list[SaslBroker]]:
    folder = tmp_path_factory.mktemp("three")
    store = f"sqlite:{folder}/store.sqlite"
    run_moldau("user", "create", USER, "--store", store, "--password-file", "-", stdin=PASSWORD)
    tokens = Tokens()
    own = "listener.name.sasl_plaintext.oauthbearer"
    started = [
        SaslBroker(
            folder / str(node_id),
            tokens,
            **{
                "node.id": str(node_id),
                "moldau.store": store,
                "connections.max.reauth.ms": "10000",
                "auto.create.topics.enable": "true",
                f"{own}.sasl.jaas.config": UNSIGNED,
                f"{own}.sasl.oauthbearer.jwks.endpoint.url": "",
            },
        )
        for node_id in (1, 2, 3)
    ]
    try:
        for broker in started:
            broker.launch()
        for broker in started:
            broker.wait_ready()
        yield started
    finally:
        for broker in started:
            broker.stop()


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("0135_sasl_credentials", "PLAIN"),
        ("0135_sasl_credentials", "SCRAM-SHA-256"),
        ("0142_reauthentication/do_test_consumer", "SCRAM-SHA-512"),
        ("0142_reauthentication/do_test_producer", "SCRAM-SHA-512"),
        ("0142_reauthentication/do_test_txn_producer", "SCRAM-SHA-256"),
        ("0142_reauthentication/do_test_oauthbearer", "OAUTHBEARER"),
        ("0142_reauthentication/do_test_reauth_failure", "PLAIN"),
        ("0142_reauthentication/do_test_reauth_failure", "SCRAM-SHA-512"),
    ],
)
def test_librdkafkas_own_test_passes(
    brokers: list[SaslBroker], runner: Path, tmp_path: Path, name: str, mechanism: str
) -> None:
    address = ",".join(broker.bootstrap_servers for broker in brokers)
    settings = ITS_TOKENS if mechanism == "OAUTHBEARER" else brokers[0].security(mechanism).librdkafka()
    settings |= {"bootstrap.servers": address, "test.timeout.multiplier": "2", "test.topic.random": "true"}
    config = tmp_path / "test.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    number, _, part = name.partition("/")
    environment = {
        **os.environ,
        "TESTS": number_of(number),
        "SUBTESTS": part or "do_test:",
        "BROKERS": address,
        "RDKAFKA_TEST_CONF": str(config),
        "LD_LIBRARY_PATH": f"{BUILT / 'src'}:{BUILT / 'src-cpp'}",
    }
    words = [str(runner), "-E", "-p1"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-3000:]
    assert f"{part or 'do_test'}:" in printed and ": PASS (" in printed and "ALL TESTS PASSED" in printed
