"""The keys of replication and of a broker's place in its cluster."""

from __future__ import annotations

from moldau.config.key import Check, Key, OneOf, Range, Scope, Type, Update

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _key(
    name: str, type_: Type, default: str | None, check: Check | None, doc: str, importance: str = "medium"
) -> Key:
    return Key(name, type_, default, doc, check, Scope.BROKER, importance=importance)


REPLICATION = (
    _key(
        "inter.broker.listener.name",
        Type.STRING,
        None,
        None,
        "The listener by which the brokers talk to each other; the first one where it is not set.",
    ),
    _key(
        "broker.session.timeout.ms",
        Type.INT,
        "9000",
        None,
        "How long a broker may be silent before the cluster goes on without it. On one machine a broker that "
        "ends is noticed at once; this is for one that hangs.",
    ),
    _key(
        "controlled.shutdown.enable",
        Type.BOOLEAN,
        "true",
        None,
        "Whether a broker that is stopped gives up its partitions first, so that clients see no error.",
    ),
    _key(
        "auto.leader.rebalance.enable",
        Type.BOOLEAN,
        "true",
        None,
        "Whether leadership goes back to the preferred replicas by itself.",
        "high",
    ),
    _key(
        "leader.imbalance.check.interval.seconds",
        Type.LONG,
        "300",
        Range(1),
        "How often the controller looks whether leaders are where they should be.",
        "high",
    ),
    _key(
        "request.timeout.ms",
        Type.INT,
        "30000",
        None,
        "How long the broker waits for the answer of another, and for its own markers to be replicated.",
        "high",
    ),
    _key(
        "replica.lag.time.max.ms",
        Type.LONG,
        "30000",
        None,
        "A follower that has not caught up for so long leaves the in-sync set.",
        "high",
    ),
    _key(
        "replica.fetch.max.bytes",
        Type.INT,
        "1048576",
        Range(0),
        "How much of one partition a follower fetches at once; a larger batch comes whole all the same.",
    ),
    _key(
        "replica.fetch.response.max.bytes",
        Type.INT,
        "10485760",
        Range(0),
        "How much a follower fetches with one request.",
    ),
    _key(
        "replica.fetch.min.bytes",
        Type.INT,
        "1",
        None,
        "How much there should be before a follower is answered.",
        "high",
    ),
    _key(
        "replica.fetch.wait.max.ms",
        Type.INT,
        "500",
        None,
        "How long a follower's fetch waits for data.",
        "high",
    ),
    _key(
        "replica.fetch.backoff.ms",
        Type.INT,
        "1000",
        Range(0),
        "How long a follower waits after an error before it fetches a partition again.",
    ),
    _key(
        "replica.socket.timeout.ms",
        Type.INT,
        "30000",
        None,
        "How long a follower waits for the answer to a fetch before it connects anew.",
        "high",
    ),
    Key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Type.LONG,
        None,
        "How many bytes a second are copied from one data folder of this broker to another (AlterReplicaLogDirs). Not "
        "set: as fast as it goes.",
        Range(0),
        update=Update.CLUSTER_WIDE,
        told_if_set=True,
    ),
    _key(
        "num.replica.alter.log.dirs.threads",
        Type.INT,
        None,
        None,
        "How many logs are copied to another data folder at the same time; as many as there are folders where it is "
        "not set.",
    ),
    _key(
        "replica.selector.class",
        Type.STRING,
        None,
        OneOf((LEADER_SELECTOR, RACK_AWARE_SELECTOR)),
        "Whether consumers that say their rack (`client.rack`) are sent to an in-sync follower in it (`broker.rack`).",
    ),
    Key(
        "leader.replication.throttled.rate",
        Type.LONG,
        None,
        "How many bytes a second this broker sends to followers that are not in sync, of the partitions in "
        "`leader.replication.throttled.replicas`. Not set: as fast as it goes.",
        Range(0),
        update=Update.CLUSTER_WIDE,
        told_if_set=True,
    ),
    Key(
        "follower.replication.throttled.rate",
        Type.LONG,
        None,
        "How many bytes a second this broker copies from leaders where it is not in sync, of the partitions in "
        "`follower.replication.throttled.replicas`. Not set: as fast as it goes.",
        Range(0),
        update=Update.CLUSTER_WIDE,
        told_if_set=True,
    ),
    _key(
        "replication.quota.window.num",
        Type.INT,
        "11",
        Range(1),
        "Over how many samples the rates of throttled replication are measured.",
        "low",
    ),
    _key(
        "replication.quota.window.size.seconds",
        Type.INT,
        "1",
        Range(1),
        "How long each of these samples is.",
        "low",
    ),
)
