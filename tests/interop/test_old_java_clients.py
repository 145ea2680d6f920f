"""Java clients of earlier years work with this broker: the oldest that Kafka 4 serves, and those before ApiVersions v4.

Kafka's own ClientCompatibilityTest, as each version was published, does the work: topics, configs, offsets by time,
producing and consuming. `--target kafka` runs the same on Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.apache_kafka import client_of
from bench.server import Server
from moldau.runtime.real.java import Unavailable
from needs import missing

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-java")]

TIMEOUT_S = 120
COMPATIBILITY_TEST = "org.apache.kafka.tools.ClientCompatibilityTest"
SUPPORTED = {
    "offsets-for-times-supported": True,
    "cluster-id-supported": True,
    "create-topics-supported": True,
    "describe-acls-supported": True,
    "expect-record-too-large-exception": False,
}
SUPPORTED_LATER = {"describe-configs-supported": True, "idempotent-producer-supported": True}


@pytest.mark.parametrize(
    ("version", "supported"),
    [("2.1.1", SUPPORTED), ("3.7.2", {**SUPPORTED, **SUPPORTED_LATER})],
    ids=["2.1.1", "3.7.2"],
)
def test_kafkas_compatibility_test_of_an_older_client_succeeds(
    new_server: Callable[..., Server], version: str, supported: dict[str, bool]
) -> None:
    try:
        client = client_of(version)
    except Unavailable as reason:
        missing(str(reason))
    server = new_server().start()
    options = [word for name, value in supported.items() for word in (f"--{name}", str(value))]
    done = client.run(
        COMPATIBILITY_TEST,
        *("--bootstrap-server", server.bootstrap_servers, "--topic", "old", "--num-cluster-nodes", "1"),
        *options,
        timeout_s=TIMEOUT_S,
    )
    assert done.stdout.endswith("SUCCESS.\n")
