"""The options `kafka.*` of a Spark query, which are written for Kafka's Java client, as librdkafka's configuration.

Names that both know pass as they are, and so do librdkafka's own. What differs is translated: another name
(`buffer.memory`), other units or ranges, Java's key stores where they are in a format that OpenSSL reads, the user and
password in `sasl.jaas.config`. What only tunes the inside of the Java client (`NO_COUNTERPART`) is left out with a
line in the log, since it changes no result. What names a Java class or a Java key store is refused with what to use
instead: `ValueError`, one sentence. Names that nobody knows are refused by `check_client_config`, at analysis.

The answer to Kafka's ProducerConfig, ConsumerConfig, SslConfigs and SaslConfigs, and to librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal

from moldau.config.jaas import parse_jaas
from moldau.config.key import ConfigError

LOG = logging.getLogger(__name__)

Role = Literal["producer", "consumer", "admin"]
Config = dict[str, str]

PREFIX = "kafka."

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
NO_COUNTERPART = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "transaction.two.phase.commit.enable",
    }
)
JAVA_CLASSES = frozenset(
    {
        "interceptor.classes",
        "metric.reporters",
        "partition.assignment.strategy",
        "partitioner.class",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.trustmanager.algorithm",
    }
)
TOKEN_HANDLERS = frozenset(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)
"""Kafka's own, which gets tokens from an address: a class that moved between packages."""
INSTEAD = {
    "partitioner.class": " Use a column `partition`, or kafka.partitioner with a name that librdkafka knows."
}

PKCS12_ENDINGS = (".p12", ".pfx", ".pkcs12")
SOCKET_TIMEOUT_MS_RANGE = (10, 300_000)
REQUEST_TIMEOUT_MS_RANGE = (1, 900_000)
REFRESH_INTERVAL_MS_RANGE = (1, 3_600_000)
METADATA_AGE_MS_RANGE = (1, 86_400_000)
COMPRESSION_LEVEL_MAX = 12
STORE_BYTES_MAX = 4 * 1024 * 1024


def kafka_options(options: Mapping[str, str]) -> Config:
    """The `kafka.*` options without that prefix. Spark gives option names in lower case, as Kafka's are."""
    return {
        name[len(PREFIX) :].lower(): str(value)
        for name, value in options.items()
        if name.lower().startswith(PREFIX)
    }


def client_config(options: Mapping[str, str], role: Role) -> Config:
    """librdkafka's configuration for a client of that role; `options` are those of `kafka_options`."""
    config: Config = {}
    for name, value in options.items():
        if name == "sasl.login.callback.handler.class" and value in TOKEN_HANDLERS:
            config["sasl.oauthbearer.method"] = "oidc"  # what it does, librdkafka does itself
        elif name in JAVA_CLASSES:
            raise ValueError(
                f"Kafka option '{name}' is not supported: it is made for Kafka's Java client, and there is none here."
                + INSTEAD.get(name, "")
            )
        elif name in NO_COUNTERPART:
            LOG.warning("Kafka option '%s' tunes the Java client alone: it is left out", name)
        elif name in TRANSLATIONS:
            config |= TRANSLATIONS[name](value, options, role)
        else:
            config[RENAMED.get(name, name)] = value
    return config


def check_client_config(config: Mapping[str, str], role: Role) -> None:
    """Refuse names and values that librdkafka does not know. No broker is asked."""
    _check(tuple(sorted(config.items())), role)


@lru_cache(maxsize=64)
def _check(config: tuple[tuple[str, str], ...], role: Role) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    apart = {
        name: value for name, value in config if name not in ("bootstrap.servers", "metadata.broker.list")
    }
    apart["log_level"] = "0"  # it would say that it has nobody to connect to
    try:
        if role == "producer":
            Producer(apart)
        elif role == "consumer":
            Consumer({"group.id": "checked", **apart}).close()
        else:
            AdminClient(apart)
    except KafkaException as error:
        raise ValueError(f"Kafka options are not usable: {error.args[0].str().strip()}") from None


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"Kafka option '{name}' must be a number, not '{value}'") from None


def _within(number: int, bounds: tuple[int, int]) -> str:
    return str(min(max(number, bounds[0]), bounds[1]))


def _request_timeout(value: str, options: Mapping[str, str], role: Role) -> Config:
    """In Java it is how long any answer is waited for, and for producers also what they tell the broker."""
    timeout_ms = _number("request.timeout.ms", value)
    config = {"socket.timeout.ms": _within(timeout_ms, SOCKET_TIMEOUT_MS_RANGE)}
    if role == "producer":
        config["request.timeout.ms"] = _within(timeout_ms, REQUEST_TIMEOUT_MS_RANGE)
    return config


def _metadata_age(value: str, options: Mapping[str, str], role: Role) -> Config:
    """In Java it is when metadata are asked for anew; librdkafka's default age is three times that."""
    age_ms = _number("metadata.max.age.ms", value)
    return {
        "topic.metadata.refresh.interval.ms": _within(age_ms, REFRESH_INTERVAL_MS_RANGE),
        "metadata.max.age.ms": _within(3 * age_ms, METADATA_AGE_MS_RANGE),
    }


def _buffer_memory(value: str, options: Mapping[str, str], role: Role) -> Config:
    return {"queue.buffering.max.kbytes": str(max(1, _number("buffer.memory", value) // 1024))}


def _max_block(value: str, options: Mapping[str, str], role: Role) -> Config:
    """How long an unknown topic is waited for. Who fills a producer's queue takes the other half from `options`."""
    return {"topic.metadata.propagation.max.ms": _within(_number("max.block.ms", value), (0, 3_600_000))}


def _socket_buffer(ours: str) -> Callable[[str, Mapping[str, str], Role], Config]:
    def translate(value: str, options: Mapping[str, str], role: Role) -> Config:
        return {ours: str(max(0, _number(ours, value)))}  # the system's default is -1 in Java, 0 here

    return translate


def _batch_size(value: str, options: Mapping[str, str], role: Role) -> Config:
    return {"batch.size": str(max(1, _number("batch.size", value)))}


def _compression_level(codec: str) -> Callable[[str, Mapping[str, str], Role], Config]:
    def translate(value: str, options: Mapping[str, str], role: Role) -> Config:
        if options.get("compression.type") != codec:
            return {}
        level = _number(f"compression.{codec}.level", value)
        return {"compression.level": str(min(level, COMPRESSION_LEVEL_MAX))}

    return translate


def _ignore_keys(value: str, options: Mapping[str, str], role: Role) -> Config:
    return {"partitioner": "random"} if value.lower() == "true" else {}


def _security_protocol(value: str, options: Mapping[str, str], role: Role) -> Config:
    return {"security.protocol": value.lower()}


def _endpoint_identification(value: str, options: Mapping[str, str], role: Role) -> Config:
    return {"ssl.endpoint.identification.algorithm": value or "none"}


def _truststore(value: str, options: Mapping[str, str], role: Role) -> Config:
    """What a store is, its content says, as for Java, whose default type reads PKCS12 too."""
    if options.get("ssl.truststore.type", "JKS").upper() == "PEM":
        return {"ssl.ca.location": value}
    try:
        with open(value, "rb") as file:
            data = file.read(STORE_BYTES_MAX)
    except OSError as error:
        raise ValueError(
            f"Kafka option 'ssl.truststore.location' names a file that cannot be read: {value}: {error.strerror}."
        ) from None
    if b"-----BEGIN " in data:
        return {"ssl.ca.location": value}
    return {"ssl.ca.pem": _trusted(value, data, options.get("ssl.truststore.password"))}


@lru_cache(maxsize=16)
def _trusted(path: str, data: bytes, password: str | None) -> str:
    from moldau.security.certificates import CertificateError, certificate_pem, read

    try:
        found = read(data, password.encode() if password else None)
    except CertificateError as error:
        raise ValueError(
            f"Kafka option 'ssl.truststore.location' is taken with PEM and PKCS12, and {path} cannot be read. {error}"
        ) from None
    return b"".join(map(certificate_pem, found.certificates)).decode()


def _keystore(value: str, options: Mapping[str, str], role: Role) -> Config:
    kind = options.get(
        "ssl.keystore.type", "PKCS12" if value.lower().endswith(PKCS12_ENDINGS) else "JKS"
    ).upper()
    if kind == "PKCS12":
        return {"ssl.keystore.location": value}
    if kind == "PEM":
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    raise ValueError(
        "Kafka option 'ssl.keystore.location' is not supported with the type JKS: give a PKCS12 file, or PEM files in "
        "kafka.ssl.certificate.location and kafka.ssl.key.location."
    )


def _with_its_store(value: str, options: Mapping[str, str], role: Role) -> Config:
    return {}  # read where the store's location is


JAAS_NAMES = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
    "Krb5LoginModule": {"principal": "sasl.kerberos.principal", "keyTab": "sasl.kerberos.keytab"},
}


def _jaas(value: str, options: Mapping[str, str], role: Role) -> Config:
    """User and password of Kafka's login modules; nothing of the value is repeated in an error, as it has secrets."""
    try:
        login = parse_jaas(value)
    except ConfigError as error:
        raise ValueError(
            f"Kafka option 'sasl.jaas.config' cannot be read: {str(error).rstrip('.')}."
        ) from None
    module = login.name.rpartition(".")[2]
    if module not in JAAS_NAMES:
        raise ValueError(
            "Kafka option 'sasl.jaas.config' is understood for one login module of Kafka's, PlainLoginModule, "
            "ScramLoginModule, OAuthBearerLoginModule or Krb5LoginModule: else use librdkafka's kafka.sasl.* options."
        )
    names = JAAS_NAMES[module]
    config = {names[name]: given for name, given in login.options.items() if name in names}
    if module == "OAuthBearerLoginModule" and "sasl.oauthbearer.client.id" in config:
        config["sasl.oauthbearer.method"] = "oidc"
    return config


TRANSLATIONS: dict[str, Callable[[str, Mapping[str, str], Role], Config]] = {
    "batch.size": _batch_size,
    "buffer.memory": _buffer_memory,
    "compression.gzip.level": _compression_level("gzip"),
    "compression.lz4.level": _compression_level("lz4"),
    "compression.zstd.level": _compression_level("zstd"),
    "max.block.ms": _max_block,
    "metadata.max.age.ms": _metadata_age,
    "partitioner.ignore.keys": _ignore_keys,
    "receive.buffer.bytes": _socket_buffer("socket.receive.buffer.bytes"),
    "request.timeout.ms": _request_timeout,
    "sasl.jaas.config": _jaas,
    "security.protocol": _security_protocol,
    "send.buffer.bytes": _socket_buffer("socket.send.buffer.bytes"),
    "ssl.endpoint.identification.algorithm": _endpoint_identification,
    "ssl.keystore.location": _keystore,
    "ssl.keystore.type": _with_its_store,
    "ssl.truststore.location": _truststore,
    "ssl.truststore.password": _with_its_store,
    "ssl.truststore.type": _with_its_store,
}
