"""`format("moldau")` on a broker of ours by each security protocol and mechanism, with the options of Java's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from interop.clients.security import MECHANISMS
from interop.secured import LISTENERS, PASSWORD, USER, Papers, SecuredMoldau, TokenServer
from moldau.spark.blocks.client_settings import client_of
from moldau.spark.client_options import client_config, kafka_options
from spark.source_topics import TIMEOUT_S, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = [
    (listener, mechanism)
    for listener, protocol in LISTENERS.items()
    if protocol != "PLAINTEXT"
    for mechanism in (MECHANISMS if protocol.startswith("SASL") else (None,))
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredMoldau]:
    folder = tmp_path_factory.mktemp("secured")
    with SecuredMoldau(folder / "broker", Papers(folder / "papers")) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(TIMEOUT_S)
        yield server


@pytest.fixture(scope="module")
def tokens(server: SecuredMoldau) -> Iterator[TokenServer]:
    giver = TokenServer(server.doors.papers)
    yield giver
    giver.close()


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
@pytest.mark.parametrize("exactly_once", ["true", "false"], ids=["once", "at-least-once"])
def test_what_is_written_is_read(
    spark: SparkSession,
    server: SecuredMoldau,
    tokens: TokenServer,
    listener: str,
    mechanism: str | None,
    exactly_once: str,
) -> None:
    topic = f"{listener}-{mechanism}-{exactly_once}".lower()
    Topics(server.bootstrap_servers).create(topic, 2)
    settings = server.doors.security(listener, mechanism, tokens).java()
    options = {"kafka.bootstrap.servers": server.doors.address(listener)}
    options |= {f"kafka.{name}": value for name, value in settings.items()}
    rows = spark.sql("select string(id) as value from range(20)").write.format("moldau").options(**options)
    rows.option("topic", topic).option("exactlyOnce", exactly_once).mode("append").save()
    read = spark.read.format("moldau").options(**options).option("subscribe", topic).load()
    assert sorted(int(row.value) for row in read.collect()) == list(range(20))
    own = client_of(client_config(kafka_options(options), "consumer"))
    assert (own is None) == (mechanism == "OAUTHBEARER")  # only the client library knows tokens
