"""The broker keys that Moldau knows by meaning: identity, listeners, connections, topics, the log, and its
own.

The keys of groups are in `group_keys`; Kafka's keys that mean nothing here are in `inert_keys`.
"""

from __future__ import annotations

from typing import Any

from moldau.config.authorization_keys import AUTHORIZATION
from moldau.config.key import Check, Key, Range, Type, Update
from moldau.config.quota_keys import QUOTAS
from moldau.config.replication_keys import REPLICATION
from moldau.config.sasl_keys import SASL
from moldau.config.ssl_keys import HTTP_SSL, SSL
from moldau.config.topic_keys import FOREVER, TOPIC_KEYS_IN_ORDER
from moldau.config.transaction_keys import TRANSACTIONS

INT_MAX = str((1 << 31) - 1)
_TOPIC_KEYS = {key.name: key for key in TOPIC_KEYS_IN_ORDER}
_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_ROLL = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_FLUSH = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")


def _key(name: str, type_: Type, default: str | None, check: Check | None, doc: str, **more: Any) -> Key:
    return Key(name, type_, default, doc, check, **more)


def _default_of(topic_key: str, name: str, importance: str = "medium") -> Key:
    """The broker key with the type, bounds and default of the topic key that it stands in for."""
    key = _TOPIC_KEYS[topic_key]
    doc = f"The broker's default for the topic key `{topic_key}`."
    return Key(
        name,
        key.type,
        key.default,
        doc,
        key.check,
        update=Update.CLUSTER_WIDE,
        importance=importance,
        acts=key.acts,
    )


IDENTITY = (
    _key(
        "node.id",
        Type.INT,
        "1",
        Range(0),
        "The broker's number in its cluster; it stays with the data folder.",
        importance="high",
    ),
    _key(
        "broker.id",
        Type.INT,
        "-1",
        None,
        "The older name of `node.id`.",
        importance="high",
    ),
    _key(
        "broker.rack",
        Type.STRING,
        None,
        None,
        "The rack or zone of the broker, told to clients and used in placing.",
    ),
    _key(
        "log.dir",
        Type.LIST,
        "moldau-data",
        None,
        "The data folder, where `log.dirs` does not name any.",
        importance="high",
    ),
    _key(
        "log.dirs",
        Type.LIST,
        None,
        None,
        "The data folders; a new partition goes to the one with the fewest. The cluster store is in the first.",
        importance="high",
    ),
)

CONNECTIONS = (
    _key(
        "listeners",
        Type.LIST,
        "PLAINTEXT://:9092",
        None,
        "Where the broker listens: NAME://HOST:PORT, ...; no host is every interface, port 0 a free one.",
        importance="high",
    ),
    _key(
        "advertised.listeners",
        Type.LIST,
        None,
        None,
        "The addresses that clients are told to use. Where it is not set, a client is told the address that "
        "it connected to, which is right from localhost, a container and a VM alike.",
        importance="high",
    ),
    _key(
        "listener.security.protocol.map",
        Type.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        "The security protocol of each listener name.",
        importance="low",
    ),
    _key(
        "controller.listener.names",
        Type.LIST,
        "",
        None,
        "Listeners of Kafka's controllers. Moldau has none: those named here are not opened.",
        importance="high",
    ),
    _key(
        "socket.request.max.bytes",
        Type.INT,
        "104857600",
        Range(1),
        "The largest request; a connection that announces a larger one is closed.",
        importance="high",
    ),
    _key(
        "connections.max.idle.ms",
        Type.LONG,
        "600000",
        None,
        "A connection without a request for this long is closed.",
    ),
    _key(
        "queued.max.request.bytes",
        Type.LONG,
        "-1",
        None,
        "Bytes of requests in memory over all connections, while they are received and larger ones while they are"
        " served; past it, connections wait for room. -1: the broker's own limit (docs/limits.md).",
        importance="medium",
    ),
    _key(
        "max.connections",
        Type.INT,
        INT_MAX,
        Range(0),
        "How many connections the broker serves at once; further ones wait, unserved, until one ends. There are never "
        "more than descriptors allow: some are kept for logs.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "max.connections.per.ip",
        Type.INT,
        INT_MAX,
        Range(0),
        "How many connections one address may hold, those that wait included; further ones are closed on arrival.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "fetch.max.bytes",
        Type.INT,
        "57671680",
        Range(1024),
        "The largest answer to a fetch, whatever the client asks for.",
    ),
    _key(
        "max.incremental.fetch.session.cache.slots",
        Type.INT,
        "1000",
        Range(0),
        "How many incremental fetch sessions are kept; further clients fetch without one.",
    ),
    _key(
        "max.request.partition.size.limit",
        Type.INT,
        "2000",
        Range(1),
        "How many partitions one DescribeTopicPartitions answer holds.",
    ),
)

TOPICS = (
    _key(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        "true",
        None,
        "Whether a topic that a client asks about comes into being.",
        importance="high",
    ),
    _key(
        "num.partitions",
        Type.INT,
        "1",
        Range(1),
        "The number of partitions of a topic that does not say.",
    ),
    _key(
        "default.replication.factor",
        Type.INT,
        "1",
        None,
        "The number of replicas of a topic that does not say.",
    ),
    _key(
        "delete.topic.enable",
        Type.BOOLEAN,
        "true",
        None,
        "Whether topics can be deleted.",
        importance="high",
    ),
    _key(
        "producer.id.expiration.ms",
        Type.INT,
        "86400000",
        Range(1),
        "How long a partition remembers an idempotent producer that is silent.",
        update=Update.CLUSTER_WIDE,
        importance="low",
    ),
)

LOG_DEFAULTS = (
    _default_of("min.insync.replicas", "min.insync.replicas", "high"),
    _default_of("unclean.leader.election.enable", "unclean.leader.election.enable", "high"),
    _default_of("compression.type", "compression.type", "high"),
    _default_of("compression.gzip.level", "compression.gzip.level"),
    _default_of("compression.lz4.level", "compression.lz4.level"),
    _default_of("compression.zstd.level", "compression.zstd.level"),
    _default_of("max.message.bytes", "message.max.bytes", "high"),
    _default_of("segment.bytes", "log.segment.bytes", "high"),
    _default_of("segment.index.bytes", "log.index.size.max.bytes"),
    _default_of("index.interval.bytes", "log.index.interval.bytes"),
    _default_of("flush.messages", "log.flush.interval.messages", "high"),
    _default_of("retention.bytes", "log.retention.bytes", "high"),
    _default_of("file.delete.delay.ms", "log.segment.delete.delay.ms", "high"),
    _default_of("cleanup.policy", "log.cleanup.policy"),
    _default_of("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _default_of("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _default_of("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _default_of("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _default_of("preallocate", "log.preallocate"),
    _default_of("message.timestamp.type", "log.message.timestamp.type"),
    _default_of("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _default_of("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _default_of("local.retention.ms", "log.local.retention.ms"),
    _default_of("local.retention.bytes", "log.local.retention.bytes"),
)


def _one_of_several(
    family: tuple[str, ...],
    name: str,
    type_: Type,
    default: str | None,
    check: Check | None,
    doc: str,
    *,
    dynamic: bool = False,
) -> Key:
    update = Update.CLUSTER_WIDE if dynamic else Update.READ_ONLY
    return Key(name, type_, default, doc, check, update=update, synonyms=family, importance="high")


LOG = (
    _one_of_several(
        _RETENTION,
        "log.retention.ms",
        Type.LONG,
        None,
        None,
        "The broker's default for the topic key `retention.ms`; before `log.retention.minutes`.",
        dynamic=True,
    ),
    _one_of_several(
        _RETENTION,
        "log.retention.minutes",
        Type.INT,
        None,
        None,
        "As `log.retention.ms`, in minutes; before `log.retention.hours`.",
    ),
    _one_of_several(
        _RETENTION,
        "log.retention.hours",
        Type.INT,
        "168",
        None,
        "As `log.retention.ms`, in hours.",
    ),
    _one_of_several(
        _ROLL,
        "log.roll.ms",
        Type.LONG,
        None,
        None,
        "The broker's default for the topic key `segment.ms`; before `log.roll.hours`.",
        dynamic=True,
    ),
    _one_of_several(_ROLL, "log.roll.hours", Type.INT, "168", Range(1), "As `log.roll.ms`, in hours."),
    _one_of_several(
        _ROLL_JITTER,
        "log.roll.jitter.ms",
        Type.LONG,
        None,
        None,
        "The broker's default for the topic key `segment.jitter.ms`; before `log.roll.jitter.hours`.",
        dynamic=True,
    ),
    _one_of_several(
        _ROLL_JITTER, "log.roll.jitter.hours", Type.INT, "0", Range(0), "As `log.roll.jitter.ms`, in hours."
    ),
    _one_of_several(
        _FLUSH,
        "log.flush.interval.ms",
        Type.LONG,
        None,
        None,
        "The broker's default for the topic key `flush.ms`; else `log.flush.scheduler.interval.ms`.",
        dynamic=True,
    ),
    _one_of_several(
        _FLUSH,
        "log.flush.scheduler.interval.ms",
        Type.LONG,
        FOREVER,
        None,
        "How often logs are looked through for records that wait too long for the disk.",
    ),
    _key(
        "log.flush.offset.checkpoint.interval.ms",
        Type.INT,
        "60000",
        Range(0),
        "How often it is written down up to where logs are on disk; after a crash the rest is checked.",
        importance="high",
    ),
    _key(
        "log.retention.check.interval.ms",
        Type.LONG,
        "300000",
        Range(1),
        "How often logs are looked through for segments that may go.",
    ),
    _key(
        "num.recovery.threads.per.data.dir",
        Type.INT,
        "2",
        Range(1),
        "How many logs of a data folder are opened at the same time at the start.",
        update=Update.CLUSTER_WIDE,
        importance="high",
    ),
)

CLEANER = (
    _key(
        "log.cleaner.enable",
        Type.BOOLEAN,
        "true",
        None,
        "Whether topics with `cleanup.policy=compact` are compacted.",
    ),
    _key(
        "log.cleaner.threads",
        Type.INT,
        "1",
        Range(0),
        "How many logs are compacted at the same time, each in a process of its own.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "log.cleaner.backoff.ms",
        Type.LONG,
        "15000",
        Range(0),
        "How long to wait before the next look when there is no log to compact.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "log.cleaner.dedupe.buffer.size",
        Type.LONG,
        "134217728",
        None,
        "Bytes of memory for finding the last record of each key, for all compactions together. Keys that do "
        "not fit go through a file.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "log.cleaner.io.buffer.load.factor",
        Type.DOUBLE,
        "0.9",
        None,
        "The share of `log.cleaner.dedupe.buffer.size` that is used.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "log.cleaner.io.buffer.size",
        Type.INT,
        "524288",
        Range(0),
        "Bytes that are written at once, for all compactions together.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "log.cleaner.io.max.bytes.per.second",
        Type.DOUBLE,
        "1.7976931348623157E308",
        None,
        "The most that a compaction reads and writes in a second.",
        update=Update.CLUSTER_WIDE,
    ),
)

OWN = (
    _key(
        "moldau.http.port",
        Type.INT,
        "-1",
        Range(-1, 65535),
        "The port of /metrics and /health; 0 is a free one, -1 serves none.",
    ),
    _key(
        "moldau.http.host",
        Type.STRING,
        "127.0.0.1",
        None,
        "The address of /metrics and /health.",
    ),
    _key(
        "moldau.max.partitions.per.broker",
        Type.INT,
        "25000",
        Range(1),
        "Partitions that one broker may have. A new topic with which one would have more is refused: each takes some "
        "10 KB of its memory, and files.",
        update=Update.CLUSTER_WIDE,
    ),
    _key(
        "moldau.store",
        Type.PASSWORD,
        None,
        None,
        "The cluster store: `sqlite:PATH`, or `zookeeper:HOST:PORT,.../CHROOT`, which may have a password; where it is "
        "not set, a file in the data folder.",
        importance="high",
    ),
)

BROKER_KEY_GROUPS = (
    ("Identity and data", IDENTITY),
    ("Listeners and connections", CONNECTIONS),
    ("TLS", SSL),
    ("SASL", SASL),
    ("Who may do what", AUTHORIZATION),
    ("Client quotas", QUOTAS),
    ("The cluster and replication", REPLICATION),
    ("Topics", TOPICS),
    ("The log", LOG + LOG_DEFAULTS),
    ("Compaction", CLEANER),
    ("Transactions", TRANSACTIONS),
    ("Moldau's own", OWN + HTTP_SSL),
)
