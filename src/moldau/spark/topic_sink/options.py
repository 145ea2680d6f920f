"""What the options of a query say about its sink, checked when the query is planned: `ValueError`, one sentence.

The producer's defaults are those of Kafka's Java client, which Spark's own connector uses: keys go to the same
partitions (murmur2), 32 MB of records wait at most, a record is given up after two minutes. So is its rule for
idempotence: on, unless the options exclude it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from moldau.spark.client_options import Config, check_client_config, client_config, kafka_options

ReplayCheck = Literal["content", "rows", "none"]

MARKER_TOPIC = "moldau_sink_markers"
DELIVERY_TIMEOUT_MS = 120_000
TRANSACTION_TIMEOUT_MS = 300_000
"""Longer than Kafka's minute: a task that takes longer than this can never succeed."""
MAX_BLOCK_MS = 60_000
IDLE_MS = 5_000
"""Of a transactional producer's connections. Where the group coordinator has gone from the cluster, librdkafka looks
for the new one only when a connection changes its state (confluentinc/librdkafka#5511): an idle one that is closed
does, and brokers close theirs after ten minutes only."""
IN_FLIGHT_MAX = 5  # what an idempotent producer may have on its way

REFUSED = {
    "key.serializer": " as keys are serialized with ByteArraySerializer.",
    "value.serializer": " as value are serialized with ByteArraySerializer.",
    "transactional.id": ": the sink chooses it. Use the option exactlyOnce.",
}
TOKENS_BY = "sasl.oauthbearer.metadata.authentication.type"
DEFAULTS = {
    "message.max.bytes": str(1 << 20),
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": str(32 * 1024),
    "queue.buffering.max.messages": "100000",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    topic: str | None
    producer: Config = field(repr=False)
    """librdkafka's, without a transactional id."""
    admin: Config = field(repr=False)
    exactly_once: bool
    application: str | None
    """Whose versions they are, where the options say it: txnAppId. A streaming query has its own id."""
    version: int | None
    replay_check: ReplayCheck
    marker_topic: str
    max_block_ms: int
    transaction_timeout_ms: int

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        options = {name.lower(): value for name, value in options.items()}
        given = kafka_options(options)
        for name, reason in REFUSED.items():
            if name in given:
                raise ValueError(f"Kafka option '{name}' is not supported{reason}")
        if given.get(TOKENS_BY) == "aws_iam":
            raise ValueError(
                f"Kafka option '{TOKENS_BY}' cannot be aws_iam: the sink uses librdkafka by itself, which gets no such "
                "tokens. Use sasl.oauthbearer.method=oidc with a token endpoint."
            )
        if not given.get("bootstrap.servers"):
            raise ValueError(
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer"
            )
        exactly_once = flag(options, "exactlyOnce")
        application, version = transaction_of(options, exactly_once=exactly_once, streaming=streaming)
        transaction_timeout_ms = number(given, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        producer = producer_config(given, transaction_timeout_ms if exactly_once else None)
        check_client_config(
            {**producer, "transactional.id": "checked"} if exactly_once else producer, "producer"
        )
        admin = admin_config(given)
        check_client_config(admin, "admin")
        topic = options.get("topic")
        return cls(
            topic=None if topic is None else topic.strip(),
            producer=producer,
            admin=admin,
            exactly_once=exactly_once,
            application=application,
            version=version,
            replay_check=replay_check_of(options),
            marker_topic=options.get("markertopic", MARKER_TOPIC),
            max_block_ms=number(given, "max.block.ms", MAX_BLOCK_MS),
            transaction_timeout_ms=transaction_timeout_ms,
        )


def flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name.lower(), "false").lower()
    if value not in ("true", "false"):
        raise ValueError(f"Option '{name}' must be true or false, not '{value}'")
    return value == "true"


def number(options: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(options.get(name, default))
    except ValueError:
        raise ValueError(f"Kafka option '{name}' must be a number, not '{options[name]}'") from None


def replay_check_of(options: Mapping[str, str]) -> ReplayCheck:
    match options.get("replaycheck", "content").lower():
        case "content":
            return "content"
        case "rows":
            return "rows"
        case "none":
            return "none"
        case other:
            raise ValueError(f"Option 'replayCheck' must be content, rows or none, not '{other}'")


def transaction_of(
    options: Mapping[str, str], *, exactly_once: bool, streaming: bool
) -> tuple[str | None, int | None]:
    """txnAppId and txnVersion, as Delta has them: together, in batch writes. A batch write without them gets an id of
    its own: its tasks write once, however often Spark tries them, and another save writes again.
    """
    application, version = options.get("txnappid"), options.get("txnversion")
    if application is None and version is None:
        return (uuid.uuid4().hex, 0) if exactly_once and not streaming else (None, None)
    if not exactly_once:
        raise ValueError("Options 'txnAppId' and 'txnVersion' need exactlyOnce=true")
    if streaming:
        raise ValueError(
            "Options 'txnAppId' and 'txnVersion' are for batch writes: a streaming query has an id of its own"
        )
    if not application or version is None:
        raise ValueError("Options 'txnAppId' and 'txnVersion' must be given together")
    if not version.isdecimal():
        raise ValueError(f"Option 'txnVersion' must be a number from 0 on, not '{version}'")
    return application, int(version)


def producer_config(given: Mapping[str, str], transaction_timeout_ms: int | None) -> Config:
    config = DEFAULTS | client_config(given, "producer")
    if "enable.idempotence" not in config and may_be_idempotent(config):
        config["enable.idempotence"] = "true"
    timeout_ms = DELIVERY_TIMEOUT_MS
    if transaction_timeout_ms is not None:
        config["transaction.timeout.ms"] = str(transaction_timeout_ms)
        config.setdefault("connections.max.idle.ms", str(IDLE_MS))
        timeout_ms = min(timeout_ms, transaction_timeout_ms)
    if config.keys().isdisjoint({"delivery.timeout.ms", "message.timeout.ms"}):
        config["delivery.timeout.ms"] = str(timeout_ms)
    return config


def may_be_idempotent(config: Config) -> bool:
    """Whether nothing in the options excludes it, by the rule of Kafka's ProducerConfig."""
    acks = config.get("acks", config.get("request.required.acks", "all"))
    retries = config.get("retries", config.get("message.send.max.retries", "1"))
    in_flight = config.get("max.in.flight.requests.per.connection", config.get("max.in.flight", "1"))
    return acks in ("all", "-1") and retries != "0" and int(in_flight) <= IN_FLIGHT_MAX


OF_RECORDS = frozenset({"enable.idempotence", "enable.gapless.guarantee", "transaction.timeout.ms"})
"""What would make an admin client ask for a producer id."""


def admin_config(given: Mapping[str, str]) -> Config:
    """How brokers are reached."""
    config = client_config(given, "admin")
    return {name: value for name, value in config.items() if name not in OF_RECORDS}
