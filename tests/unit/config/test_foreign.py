"""Names that are no keys: whose they are, by files and variables as they are met."""

from __future__ import annotations

import pytest

from moldau.config.foreign import foreign_keys
from moldau.config.inert_keys import inert_keys
from moldau.config.key import ConfigError
from moldau.config.sources import parse_variables
from moldau.config.spelling import meant
from moldau.config.table import BROKER_KEYS, broker_key

INSIDE_KAFKA = """
    consumer.max.session.timeout.ms consumer.min.session.timeout.ms log.default.flush.scheduler.interval.ms
    producer.id.expiration.check.interval.ms
"""
OF_KAFKA_3 = """
    advertised.host.name advertised.port broker.id.generation.enable
    control.plane.listener.name delegation.token.master.key host.name inter.broker.protocol.version
    log.message.downconversion.enable log.message.format.version log.message.timestamp.difference.max.ms
    offsets.commit.required.acks password.encoder.keyfactory.algorithm password.encoder.secret port
    quota.consumer.default quota.producer.default reserved.broker.max.id zookeeper.clientCnxnSocket
    zookeeper.connect zookeeper.connection.timeout.ms zookeeper.metadata.migration.enable
    zookeeper.session.timeout.ms zookeeper.set.acl zookeeper.ssl.client.enable zookeeper.ssl.keystore.location
    zookeeper.ssl.protocol zookeeper.ssl.truststore.password
"""
OF_VENDORS_AND_PLUGINS = """
    client.quota.callback.static.produce confluent.balancer.enable confluent.license.topic.replication.factor
    confluent.metadata.topic.replication.factor confluent.metrics.reporter.bootstrap.servers
    confluent.ssl.truststore.location confluent.support.customer.id confluent.support.metrics.enable
    confluent.tier.feature cruise.control.metrics.reporter.bootstrap.servers jmx.port kafka.rest.bootstrap.servers
    ldap.java.naming.provider.url rlmm.config.remote.log.metadata.topic.replication.factor
    rsm.config.storage.backend.class strimzi.authorization.grants.refresh.period.seconds
"""
OF_KUBERNETES = {
    "MOLDAU_PORT": "tcp://10.96.0.7:9092",
    "MOLDAU_PORT_9092_TCP": "tcp://10.96.0.7:9092",
    "MOLDAU_PORT_9092_TCP_ADDR": "10.96.0.7",
    "MOLDAU_PORT_9092_TCP_PORT": "9092",
    "MOLDAU_PORT_9092_TCP_PROTO": "tcp",
    "MOLDAU_SERVICE_HOST": "10.96.0.7",
    "MOLDAU_SERVICE_PORT": "9092",
    "MOLDAU_SERVICE_PORT_KAFKA": "9092",
    # Of services that are called moldau-0 and moldau-http: the last has the name of a key of ours.
    "MOLDAU_0_SERVICE_HOST": "10.96.0.8",
    "MOLDAU_0_PORT_9092_TCP_ADDR": "10.96.0.8",
    "MOLDAU_HTTP_SERVICE_PORT": "9100",
    "MOLDAU_HTTP_PORT": "tcp://10.96.0.9:9100",
}


@pytest.mark.parametrize(
    "name", [*INSIDE_KAFKA.split(), *OF_KAFKA_3.split(), *OF_VENDORS_AND_PLUGINS.split()]
)
def test_a_key_of_kafkas_past_or_of_a_vendor_is_none_of_ours_misspelt(name: str) -> None:
    assert broker_key(name) is None
    assert foreign_keys(["log.dirs", name]) == [name]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("log.retention", "log.retention.ms"),
        ("log_retention_hours", "log.retention.hours"),
        ("offset.topic.replication.factor", "offsets.topic.replication.factor"),
        ("lisenters", "listeners"),
        ("ssl.keystore.locaton", "ssl.keystore.location"),
        ("moldau.htp.port", "moldau.http.port"),
        ("http.port", "moldau.http.port"),
        ("retention.ms", "log.retention.ms"),
        ("LOG.RETENTION.HOURS", "log.retention.hours"),
        ("Num.Partitions", "num.partitions"),
        ("RETENTION.MS", "log.retention.ms"),
        ("HTTP.PORT", "moldau.http.port"),
        ("default.replication", "default.replication.factor"),
        ("auto.create", "auto.create.topics.enable"),
        ("inter.broker", "inter.broker.listener.name"),
    ],
)
def test_a_key_of_ours_that_is_misspelt_in_a_properties_file_is_refused_with_the_guess(
    name: str, key: str
) -> None:
    with pytest.raises(ConfigError, match=f"'{key}'"):
        foreign_keys(["log.dirs", name])


def test_what_begins_with_our_name_is_ours_however_it_goes_on() -> None:
    with pytest.raises(ConfigError, match=r"unknown broker key 'moldau\.licence'"):
        foreign_keys(["moldau.licence"])


@pytest.mark.parametrize("key", sorted(BROKER_KEYS.keys() | inert_keys().keys())[::7])
def test_a_letter_left_out_doubled_or_swapped_is_a_misspelling_of_every_key(key: str) -> None:
    middle = len(key) // 2
    for name in (
        key[:-1],
        key[:middle] + key[middle + 1 :],
        key[:middle] + key[middle] + key[middle:],
        key[:middle] + key[middle + 1] + key[middle] + key[middle + 2 :],
    ):
        if broker_key(name) is None:
            assert meant(name, [*BROKER_KEYS, *inert_keys()]) is not None, name


def test_what_kubernetes_sets_for_a_service_of_our_name_is_left_alone() -> None:
    assert parse_variables(OF_KUBERNETES | {"MOLDAU_NUM_PARTITIONS": "3"}) == ({"num.partitions": "3"}, [])


def test_no_key_has_the_name_of_such_a_variable() -> None:
    for name in (*BROKER_KEYS, *inert_keys()):
        variable = "MOLDAU_" + name.removeprefix("moldau.").replace(".", "_").upper()
        assert parse_variables({variable: "1"}).settings, variable


@pytest.mark.parametrize(
    ("variable", "guess"),
    [
        ("MOLDAU_LOG_RETENTION_HOUR", "MOLDAU_LOG_RETENTION_HOURS"),
        ("MOLDAU_HTP_PORT", "MOLDAU_HTTP_PORT"),
        ("MOLDAU_STOER", "MOLDAU_STORE"),
    ],
)
def test_a_variable_that_is_nearly_a_key_is_refused_with_the_guess(variable: str, guess: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable} names no configuration key: did you mean {guess}"):
        parse_variables({variable: "24"})


def test_a_variable_that_is_like_no_key_is_told_and_stops_nothing() -> None:
    environment = {"MOLDAU_HOME": "/opt/moldau", "MOLDAU_VERSION": "1", "MOLDAU_PORT": "9192"}
    assert parse_variables(environment) == ({}, ["MOLDAU_HOME", "MOLDAU_VERSION", "MOLDAU_PORT"])
