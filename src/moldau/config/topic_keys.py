"""The topic keys: all of Kafka's, in the order in which Kafka reads them (the first bad one is the one
reported).

A topic that does not set a key takes the value of the broker key named in `synonyms`. `acts=False` marks what
belongs to a part of Moldau that is not there yet (several replicas) or never will be
(tiered storage).
"""

from __future__ import annotations

from typing import Any

from moldau.config.key import Check, Key, ListOf, OneOf, Range, Scope, ThrottledReplicas, Type

LONG_MAX = (1 << 63) - 1
FOREVER = str(LONG_MAX)
COMPRESSION_TYPES = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
CLEANUP_POLICIES = ListOf(("compact", "delete"))
TIMESTAMP_TYPES = OneOf(("CreateTime", "LogAppendTime"))
SEGMENT_BYTES_MIN = 1 << 20


def _key(
    name: str, type_: Type, default: str | None, check: Check | None, doc: str, *synonyms: str, **more: Any
) -> Key:
    return Key(name, type_, default, doc, check, Scope.TOPIC, synonyms=synonyms, **more)


TOPIC_KEYS_IN_ORDER = (
    _key(
        "segment.bytes",
        Type.INT,
        "1073741824",
        Range(SEGMENT_BYTES_MIN),
        "A segment file is closed and a new one begun before it would grow beyond this size.",
        "log.segment.bytes",
    ),
    _key(
        "segment.ms",
        Type.LONG,
        "604800000",
        Range(1),
        "A segment is closed once its first record is this old, even if it is not full.",
        "log.roll.ms",
        "log.roll.hours",
    ),
    _key(
        "segment.jitter.ms",
        Type.LONG,
        "0",
        Range(0),
        "A random time up to this is taken off `segment.ms`, so that partitions do not all roll at once.",
        "log.roll.jitter.ms",
        "log.roll.jitter.hours",
    ),
    _key(
        "segment.index.bytes",
        Type.INT,
        "10485760",
        Range(4),
        "The largest size of an index file; a segment whose index is full is closed.",
        "log.index.size.max.bytes",
    ),
    _key(
        "flush.messages",
        Type.LONG,
        FOREVER,
        Range(1),
        "After this many records the log is forced to disk; 1 means before every acknowledgement.",
        "log.flush.interval.messages",
    ),
    _key(
        "flush.ms",
        Type.LONG,
        FOREVER,
        Range(0),
        "Records are forced to disk at the latest this long after they were written.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
    _key(
        "retention.bytes",
        Type.LONG,
        "-1",
        None,
        "The oldest segments of a partition are deleted while it is larger than this; -1 sets no limit.",
        "log.retention.bytes",
    ),
    _key(
        "retention.ms",
        Type.LONG,
        "604800000",
        Range(-1),
        "Segments whose newest record is older than this are deleted; -1 keeps them for ever.",
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ),
    _key(
        "max.message.bytes",
        Type.INT,
        "1048588",
        Range(0),
        "The largest record batch that is accepted, after compression.",
        "message.max.bytes",
    ),
    _key(
        "index.interval.bytes",
        Type.INT,
        "4096",
        Range(0),
        "About how many bytes of log lie between two entries of the offset index.",
        "log.index.interval.bytes",
    ),
    _key(
        "delete.retention.ms",
        Type.LONG,
        "86400000",
        Range(0),
        "How long a compacted topic keeps the marks of deleted keys.",
        "log.cleaner.delete.retention.ms",
    ),
    _key(
        "min.compaction.lag.ms",
        Type.LONG,
        "0",
        Range(0),
        "A record is not compacted away before it is this old.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    _key(
        "max.compaction.lag.ms",
        Type.LONG,
        FOREVER,
        Range(1),
        "A record of a compacted topic waits at most this long for compaction.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    _key(
        "file.delete.delay.ms",
        Type.LONG,
        "60000",
        Range(0),
        "How long a file that is no longer part of the log stays on disk.",
        "log.segment.delete.delay.ms",
    ),
    _key(
        "min.cleanable.dirty.ratio",
        Type.DOUBLE,
        "0.5",
        Range(0, 1),
        "A log is compacted when this share of it has not been compacted yet.",
        "log.cleaner.min.cleanable.ratio",
    ),
    _key(
        "cleanup.policy",
        Type.LIST,
        "delete",
        CLEANUP_POLICIES,
        "What happens to old records: `delete` drops whole segments by age and size, `compact` keeps the "
        "newest record of each key; both together are possible, and an empty list keeps everything.",
        "log.cleanup.policy",
    ),
    _key(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        "false",
        None,
        "Whether a replica that is not in sync may become leader when no other is left, losing records.",
        "unclean.leader.election.enable",
    ),
    _key(
        "min.insync.replicas",
        Type.INT,
        "1",
        Range(1),
        "With acks=all a write is refused unless this many replicas are in sync.",
        "min.insync.replicas",
    ),
    _key(
        "compression.type",
        Type.STRING,
        "producer",
        COMPRESSION_TYPES,
        "The codec in which batches are stored; `producer` keeps what the producer chose.",
        "compression.type",
    ),
    _key(
        "compression.gzip.level",
        Type.INT,
        "-1",
        Range(1, 9, extra=-1),
        "The effort of gzip where Moldau compresses itself; -1 is its default.",
        "compression.gzip.level",
    ),
    _key(
        "compression.lz4.level",
        Type.INT,
        "9",
        Range(1, 17),
        "The effort of lz4 where Moldau compresses itself.",
        "compression.lz4.level",
    ),
    _key(
        "compression.zstd.level",
        Type.INT,
        "3",
        Range(-131072, 22),
        "The effort of zstd where Moldau compresses itself.",
        "compression.zstd.level",
    ),
    _key(
        "preallocate",
        Type.BOOLEAN,
        "false",
        None,
        "Whether a new segment gets its whole size on disk at once.",
        "log.preallocate",
        acts=False,
    ),
    _key(
        "message.timestamp.type",
        Type.STRING,
        "CreateTime",
        TIMESTAMP_TYPES,
        "Whether a record keeps its producer's time or gets the time of its arrival.",
        "log.message.timestamp.type",
    ),
    _key(
        "message.timestamp.before.max.ms",
        Type.LONG,
        FOREVER,
        Range(0),
        "How far a record's time may lie in the past of the broker's clock.",
        "log.message.timestamp.before.max.ms",
    ),
    _key(
        "message.timestamp.after.max.ms",
        Type.LONG,
        "3600000",
        Range(0),
        "How far a record's time may lie in the future of the broker's clock.",
        "log.message.timestamp.after.max.ms",
    ),
    _key(
        "leader.replication.throttled.replicas",
        Type.LIST,
        "",
        ThrottledReplicas(),
        "Replicas whose followers' copying is throttled by their leaders (`leader.replication.throttled.rate`) until "
        "they are in sync: partition:broker of the leaders.",
    ),
    _key(
        "follower.replication.throttled.replicas",
        Type.LIST,
        "",
        ThrottledReplicas(),
        "Replicas that copy from their leaders no faster than `follower.replication.throttled.rate` until they are in "
        "sync: partition:broker of the followers.",
    ),
    _key(
        "remote.storage.enable",
        Type.BOOLEAN,
        "false",
        None,
        "Tiered storage for the topic. Moldau has none, so only `false` is accepted.",
        acts=False,
    ),
    _key(
        "local.retention.ms",
        Type.LONG,
        "-2",
        Range(-2),
        "How long a tiered topic keeps its local copies; -2 means as `retention.ms`.",
        "log.local.retention.ms",
        acts=False,
    ),
    _key(
        "local.retention.bytes",
        Type.LONG,
        "-2",
        Range(-2),
        "How much of a tiered topic is kept locally; -2 means as `retention.bytes`.",
        "log.local.retention.bytes",
        acts=False,
    ),
    _key(
        "remote.log.copy.disable",
        Type.BOOLEAN,
        "false",
        None,
        "Whether a tiered topic stops copying segments away.",
        acts=False,
    ),
    _key(
        "remote.log.delete.on.disable",
        Type.BOOLEAN,
        "false",
        None,
        "Whether a tiered topic's remote data is deleted when tiering is switched off.",
        acts=False,
    ),
    _key(
        "internal.segment.bytes",
        Type.INT,
        None,
        None,
        "As `segment.bytes`, without its lower bound: for tests that need many small segments.",
        hidden=True,
    ),
)
