"""The options of the source: those of Spark's own Kafka connector with its defaults and its words of refusal, and
our own.

Answers to KafkaSourceProvider. Keys come in any case. Nothing here asks a broker.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import uuid4

from moldau.spark.client_options import Role, check_client_config, client_config, kafka_options
from moldau.spark.source.errors import OptionError
from moldau.spark.source.limits import (
    Earliest,
    Group,
    Latest,
    Limit,
    NoMatch,
    SpecificOffsets,
    SpecificTimestamps,
    Timestamp,
)
from moldau.spark.source.offsets import (
    EARLIEST,
    LATEST,
    TopicPartition,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)

log = logging.getLogger(__name__)

S = TypeVar("S")
T = TypeVar("T")

STRATEGIES: Final = ("subscribe", "subscribepattern", "assign")
OWN: Final = frozenset(
    {
        *STRATEGIES,
        "startingoffsets",
        "endingoffsets",
        "startingoffsetsbytimestamp",
        "endingoffsetsbytimestamp",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestampstrategy",
        "failondataloss",
        "minpartitions",
        "maxrecordsperpartition",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "maxbytespertrigger",
        "minoffsetspertask",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "partition.metadata.cache.ttl.ms",
        "kafkaconsumer.polltimeoutms",
        "groupidprefix",
        "includeheaders",
        "columns",
        "valueformat",
        "valueschema",
        "deadlettertopic",
        "mode",
        "progressgroup",
    }
)
MIN_OFFSETS_PER_TASK: Final = 4000
"""About as many records as cost Spark what a task costs that runs Python."""
VALUE_FORMATS: Final = ("binary", "string", "json")
MODES: Final = ("PERMISSIVE", "FAILFAST", "DROPMALFORMED")
STARTING_WORDS: Final = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
ENDING_WORDS: Final = ("endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets")
_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: re.Pattern[str]


Choice = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class SourceOptions:
    choice: Choice
    starting: Limit | None
    ending: Limit | None
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    min_offsets_per_task: int
    """Partitions with fewer offsets share a task."""
    offset_attempts: int
    offset_retry_ms: int
    metadata_ttl_ms: int
    read_timeout_ms: int | None
    group_id: str
    """Of the driver's own client; it never joins the group."""
    progress_group: str | None
    """Where the query's progress is committed."""
    include_headers: bool
    columns: tuple[str, ...] | None
    value_format: str | None
    value_schema: str | None
    dead_letter_topic: str | None
    mode: str | None
    """What becomes of values that are not of their format; None: the option is not given, which is PERMISSIVE."""
    kafka: dict[str, str] = field(repr=False)
    """The options `kafka.*` without that prefix, in Java's words or librdkafka's."""

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka["bootstrap.servers"]

    @property
    def read_committed(self) -> bool:
        return self.kafka.get("isolation.level", "read_uncommitted").lower() == "read_committed"

    def client_config(self, role: Role) -> dict[str, str]:
        """librdkafka's."""
        return client_config(self.kafka, role)


def parse_options(given: Mapping[str, str], *, is_stream: bool | None) -> SourceOptions:
    """OptionError where they are wrong, for a stream or for a batch; None: it is not known yet which."""
    options = {key.lower(): value for key, value in given.items()}
    kafka = kafka_options(options)
    if is_stream is not None:
        _check_stream_ends(options) if is_stream else _check_batch_ends(options)
    choice = _choice(options)
    _check_kafka(kafka)
    _parsed(lambda config: check_client_config(config, "consumer"), client_config(kafka, "consumer"))
    _note_strangers(options)
    min_offsets, max_offsets = (
        _positive(options, "minoffsetspertrigger"),
        _positive(options, "maxoffsetspertrigger"),
    )
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            f"The value of minOffsetPerTrigger({min_offsets}) is higher than the maxOffsetsPerTrigger({max_offsets})."
        )
    prefix = options.get("groupidprefix", "spark-kafka-source" if is_stream else "spark-kafka-relation")
    group = kafka.get("group.id")
    progress_group = options.get("progressgroup", group or "").strip() or None
    starting = _limit(options, STARTING_WORDS)
    if isinstance(starting, Group) and progress_group is None:
        raise OptionError(
            "startingOffsets=group needs the option 'progressGroup': the group whose offsets are meant"
        )
    return SourceOptions(
        choice=choice,
        starting=starting,
        ending=_limit(options, ENDING_WORDS),
        fail_on_data_loss=_flag(options, "failondataloss", True),
        min_partitions=_positive(options, "minpartitions", "minPartitions must be positive"),
        max_records_per_partition=_positive(
            options, "maxrecordsperpartition", "maxrecordsperpartition must be positive"
        ),
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_bytes_per_trigger=_positive(options, "maxbytespertrigger"),
        min_offsets_per_task=_positive(options, "minoffsetspertask") or MIN_OFFSETS_PER_TASK,
        max_trigger_delay_ms=_duration_ms(options, "maxtriggerdelay", "15m"),
        offset_attempts=_whole(options, "fetchoffset.numretries", 3),
        offset_retry_ms=_whole(options, "fetchoffset.retryintervalms", 1000),
        metadata_ttl_ms=_metadata_ttl_ms(options),
        read_timeout_ms=_positive(options, "kafkaconsumer.polltimeoutms"),
        group_id=group or f"{prefix}-{uuid4()}-driver",
        progress_group=progress_group,
        include_headers=_flag(options, "includeheaders", False),
        columns=_names(options["columns"]) if "columns" in options else None,
        value_format=_value_format(options),
        value_schema=options.get("valueschema"),
        dead_letter_topic=options.get("deadlettertopic", "").strip() or None,
        mode=_mode(options),
        kafka=kafka,
    )


def _check_stream_ends(options: Mapping[str, str]) -> None:
    if "endingoffsets" in options:
        raise OptionError("ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in options or "endingtimestamp" in options:
        raise OptionError("ending timestamp not valid in streaming queries")


def _check_batch_ends(options: Mapping[str, str]) -> None:
    match _limit(options, STARTING_WORDS):
        case Latest():
            raise OptionError("starting offset can't be latest for batch queries on Kafka")
        case SpecificOffsets(offsets):
            for partition, offset in offsets.items():
                if offset == LATEST:
                    raise OptionError(
                        f"startingOffsets for {partition} can't be latest for batch queries on Kafka"
                    )
    match _limit(options, ENDING_WORDS):
        case Earliest():
            raise OptionError("ending offset can't be earliest for batch queries on Kafka")
        case Group():
            raise OptionError("ending offset can't be group: the group's offsets are where a query starts")
        case SpecificOffsets(offsets):
            for partition, offset in offsets.items():
                if offset == EARLIEST:
                    raise OptionError(
                        f"ending offset for {partition} can't be earliest for batch queries on Kafka"
                    )
    _check_order(_limit(options, STARTING_WORDS), _limit(options, ENDING_WORDS))
    for word in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"):
        if word.lower() in options:
            log.warning("%s option ignored in batch queries", word)


def _check_order(starting: Limit | None, ending: Limit | None) -> None:
    match starting, ending:
        case SpecificOffsets(first), SpecificOffsets(last):
            kind = "offset"
        case SpecificTimestamps(first, _), SpecificTimestamps(last, _):
            kind = "timestamp"
        case _:
            return
    if first.keys() != last.keys():
        raise OptionError(
            "The specified start offset and end offset should have the same topic-partitions. Topic-partitions for "
            f"start offset: {', '.join(map(str, sorted(first)))}, topic-partitions for end offset: "
            f"{', '.join(map(str, sorted(last)))}."
        )
    for partition, offset in first.items():
        if 0 <= last[partition] < offset:
            raise OptionError(
                f"The specified start {kind} {offset} is greater than the end {kind} {last[partition]} for topic "
                f"{partition.topic} partition {partition.partition}."
            )


def _choice(options: Mapping[str, str]) -> Choice:
    chosen = [word for word in STRATEGIES if word in options]
    if len(chosen) != 1:
        many = "Only one" if chosen else "One"
        verb = "can" if chosen else "must"
        raise OptionError(
            f"{many} of the following options {verb} be specified for Kafka source: {', '.join(STRATEGIES)}. "
            "See the docs for more details."
        )
    value = options[chosen[0]]
    match chosen[0]:
        case "assign":
            if not value.strip().startswith("{"):
                raise OptionError(
                    f"No topicpartitions to assign as specified value for option 'assign' is '{value}'"
                )
            return Assign(_parsed(parse_partitions, value))
        case "subscribe":
            if not (topics := _names(value)):
                raise OptionError(
                    f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
                )
            return Subscribe(topics)
        case _:
            if not value.strip():
                raise OptionError(
                    f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'"
                )
            try:
                return SubscribePattern(re.compile(value.strip()))
            except re.error as reason:
                raise OptionError(
                    f"Option 'subscribePattern' is '{value}', no regular expression: {reason}"
                ) from None


def _check_kafka(kafka: Mapping[str, str]) -> None:
    if "auto.offset.reset" in kafka:
        raise OptionError(
            "\nKafka option 'auto.offset.reset' is not supported.\nInstead set the source option 'startingoffsets' to "
            "'earliest' or 'latest'\nto specify where to start. Structured Streaming manages which offsets are "
            "consumed\ninternally, rather than relying on the kafkaConsumer to do it. Note that 'startingoffsets' "
            "only\napplies when a new Streaming query is started, and that resuming will always pick up from where\n"
            "the query left off."
        )
    for part in ("key", "value"):
        if f"{part}.deserializer" in kafka:
            raise OptionError(
                f"Kafka option '{part}.deserializer' is not supported as {part}s are deserialized as byte arrays with "
                f"ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the {part}s."
            )
    for key in ("enable.auto.commit", "interceptor.classes"):
        if key in kafka:
            raise OptionError(f"Kafka option '{key}' is not supported")
    if "bootstrap.servers" not in kafka:
        raise OptionError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
    level = kafka.get("isolation.level", "read_uncommitted")
    if level.lower() not in ("read_uncommitted", "read_committed"):
        raise OptionError(
            f"Option 'kafka.isolation.level' is '{level}': it is one of 'read_uncommitted' and 'read_committed'"
        )


def _note_strangers(options: Mapping[str, str]) -> None:
    for key in sorted(options.keys() - OWN):
        if not key.startswith("kafka."):
            log.warning("The data source 'moldau' has no option '%s'; it is left out.", key)


def _limit(options: Mapping[str, str], words: tuple[str, str, str]) -> Limit | None:
    """Where to start or to end: the first of the three options that is there. None: the default."""
    timestamp, by_timestamp, offsets = words
    no_match = options.get("startingoffsetsbytimestampstrategy", "error").upper()
    if no_match not in NoMatch.__members__:
        raise OptionError(
            f"Option 'startingOffsetsByTimestampStrategy' is '{no_match}': it is one of 'error' and 'latest'"
        )
    if timestamp in options:
        value = options[timestamp].strip()
        if not re.fullmatch(r"[+-]?\d+", value):
            raise OptionError(f"Expected a single long value, got {value}")
        return Timestamp(int(value), NoMatch[no_match])
    if by_timestamp in options:
        return SpecificTimestamps(_parsed(parse_timestamps, options[by_timestamp].strip()), NoMatch[no_match])
    if offsets not in options:
        return None
    match options[offsets].strip().lower():
        case "latest":
            return Latest()
        case "earliest":
            return Earliest()
        case "group":
            return Group()
        case _:
            return SpecificOffsets(_parsed(parse_offsets, options[offsets].strip()))


def _value_format(options: Mapping[str, str]) -> str | None:
    if "valueformat" not in options:
        return "json" if "valueschema" in options else None
    value = options["valueformat"].strip().lower()
    if value not in VALUE_FORMATS:
        raise OptionError(f"Option 'valueFormat' is '{value}': it is one of {', '.join(VALUE_FORMATS)}")
    return value


def _mode(options: Mapping[str, str]) -> str | None:
    """As in Spark's `from_json` and its readers of files."""
    if "mode" not in options:
        return None
    mode = options["mode"].strip().upper()
    if mode not in MODES:
        raise OptionError(f"Option 'mode' is '{options['mode']}': it is one of {', '.join(MODES)}")
    if mode != MODES[0] and options.get("deadlettertopic", "").strip():
        raise OptionError(
            f"Options 'mode={mode}' and 'deadLetterTopic' exclude each other: bad records go there"
        )
    return mode


def _parsed(parse: Callable[[S], T], given: S) -> T:
    try:
        return parse(given)
    except ValueError as reason:
        raise OptionError(str(reason)) from None


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _flag(options: Mapping[str, str], key: str, default: bool) -> bool:
    match options.get(key, str(default)).strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise OptionError(f"Option '{key}' is true or false. For input string: \"{options[key]}\"")


def _whole(options: Mapping[str, str], key: str, default: int) -> int:
    value = options.get(key, str(default)).strip()
    if not re.fullmatch(r"[+-]?\d+", value):
        raise OptionError(f"Option '{key}' is a whole number. For input string: \"{value}\"")
    return int(value)


def _positive(options: Mapping[str, str], key: str, refusal: str | None = None) -> int | None:
    if key not in options:
        return None
    number = _whole(options, key, 0)
    if number <= 0:
        raise OptionError(refusal or f"{key} must be positive")
    return number


def _metadata_ttl_ms(options: Mapping[str, str]) -> int:
    key = "partition.metadata.cache.ttl.ms"
    number = _whole(options, key, -1)
    if number != -1 and number <= 0:
        raise OptionError(
            f"Option '{key}' must be a positive number of milliseconds, or -1 to disable caching"
        )
    return number


def _duration_ms(options: Mapping[str, str], key: str, default: str) -> int:
    """A time as Spark writes it: `15m`, `10s`, `500ms`; a bare number is of milliseconds."""
    value = options.get(key, default).strip().lower()
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", value)
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise OptionError(f"Option '{key}' is a time such as 50s, 100ms, or 250us; got '{value}'")
    return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])
