"""Produce: what is taken, what is refused and how, and what is in the log afterwards."""

from __future__ import annotations

from typing import Any

from moldau.records.compression import Codec

from ..batches import HOUR_MS, START_MS, batch, changed, old_message, records, with_body
from ..conversation import Conversation, scenario
from ..normal import without_times
from ..peers import PATIENCE_S

Wanted = tuple[str, list[tuple[int, bytes | None]]]
PRODUCER = 4242


def request(
    talk: Conversation,
    *topics: Wanted,
    acks: int = -1,
    transactional_id: str | None = None,
    version: int | None = None,
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 5_000,
        "topic_data": [
            {
                **talk.named(name, ids_from=13, version=version),
                "partition_data": [{"index": index, "records": data} for index, data in partitions],
            }
            for name, partitions in topics
        ],
    }


def produce(
    talk: Conversation,
    case: str,
    *topics: Wanted,
    version: int | None = None,
    patience_s: float = PATIENCE_S,
    **options: Any,
) -> None:
    wanted = request(talk, *topics, version=version, **options)
    talk.ask(case, wanted, api="Produce", version=version, adjust=_comparable, patience_s=patience_s)


def _comparable(tree: Any) -> Any:
    """Kafka answers in the order of a hash table; and messages quote the time."""
    tree["responses"].sort(key=lambda topic: topic.get("name") or str(topic["topic_id"]))
    for topic in tree["responses"]:
        topic["partition_responses"].sort(key=lambda partition: partition["index"])
        for partition in topic["partition_responses"]:
            for error in partition.get("record_errors", ()):
                error["batch_index_error_message"] = without_times(error["batch_index_error_message"])
            if "error_message" in partition:
                partition["error_message"] = without_times(partition["error_message"])
    return tree


def read_back(talk: Conversation, name: str, *, partition: int = 0, decoded: bool = False) -> None:
    """Compare what is stored, byte for byte, or record for record where a broker compressed it itself."""
    wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
    talk.ask(
        f"{name}-{partition} as stored",
        {
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 25,
            "topics": [{"topic": name, "partitions": [wanted]}],
        },
        api="Fetch",
        version=11,
        decoded=decoded,
    )


@scenario("Produce", "taken")
def taken(talk: Conversation) -> None:
    first, second = talk.topic("first", 2), talk.topic("second")
    produce(talk, "one partition", (first, [(0, batch(b"a", b"b", None))]))
    produce(talk, "acks=1", (first, [(1, batch(b"c"))]), acks=1)
    produce(talk, "several", (first, [(1, batch(b"d")), (0, batch(b"e"))]), (second, [(0, batch(b"f"))]))
    produce(talk, "partitions of both kinds", (first, [(0, batch(b"g")), (7, batch(b"h"))]))
    produce(talk, "the same partition twice", (second, [(0, batch(b"i")), (0, batch(b"j"))]))
    produce(talk, "the same topic twice", (second, [(0, batch(b"k"))]), (second, [(0, batch(b"l"))]))
    produce(talk, "no topics")
    produce(talk, "no partitions", (second, []))
    produce(talk, "no key", (first, [(0, batch(b"m", key=None))]))
    produce(talk, "a leader epoch of its own", (first, [(0, changed(batch(b"n"), leader_epoch=77))]))
    produce(talk, "no timestamp", (first, [(0, records((b"k", -1)))]))
    produce(talk, "unordered timestamps", (first, [(0, records((b"k", START_MS), (b"k", START_MS - 9)))]))
    low = changed(batch(b"o", b"p"), max_timestamp=START_MS)
    produce(talk, "a max timestamp that is too low", (first, [(0, low)]))
    high = changed(batch(b"o", b"p"), max_timestamp=START_MS + HOUR_MS)
    produce(talk, "a max timestamp that is too high", (first, [(0, high)]))
    produce(talk, "append time claimed", (first, [(0, batch(b"q", b"r", log_append_time=START_MS + 5))]))
    produce(talk, "unused attribute bits", (first, [(0, changed(batch(b"s"), attributes=0x7F00))]))
    for codec in Codec:
        produce(talk, f"codec {codec.name}", (first, [(0, batch(b"t", b"u" * 99, codec=codec))]))
    for name, partition in (first, 0), (first, 1), (second, 0):
        read_back(talk, name, partition=partition)


@scenario("Produce", "refused")
def refused(talk: Conversation) -> None:
    topic = talk.topic("topic")
    good = batch(b"value", b"another")

    def refuse(case: str, data: bytes | None, **options: Any) -> None:
        produce(talk, case, (topic, [(0, data)]), **options)

    produce(talk, "unknown topic", (talk.name("missing"), [(0, good)]))
    produce(talk, "invalid name", ("no spaces", [(0, good)]))
    produce(talk, "unknown partition", (topic, [(9, good), (-1, good)]))
    for acks in 2, 3, -2:
        refuse(f"acks={acks}", good, acks=acks)
    refuse("null", None, patience_s=0.3)
    refuse("empty", b"")
    refuse("corrupt checksum", changed(good, sealed=False, crc=1))
    for magic in -1, 3, 127:
        refuse(f"magic {magic}", changed(good, sealed=False, magic=magic))
    for magic in 0, 1:
        refuse(f"a message of magic {magic}", old_message(magic))
        refuse(f"a batch of magic {magic}", changed(good, magic=magic))
    for length in -1, 0, 13, 14, 48:
        refuse(f"length {length}", changed(good, sealed=False, length=length))
    refuse("length too long", changed(good, sealed=False, length=len(good)))
    refuse("length 2**31-1", changed(good, sealed=False, length=2**31 - 1))
    for size in 1, 11, 12, 16, 17, 40, 61, len(good) - 1:
        refuse(f"cut off after {size} bytes", good[:size])
    refuse("two batches", good + good)
    refuse("a batch and a cut-off one", good + good[:30])
    refuse("a batch and zeros", good + bytes(40))
    refuse("a base offset", changed(good, base_offset=5))
    for delta in -1, 0, 2:
        refuse(f"last offset delta {delta}", changed(good, last_offset_delta=delta))
    for count in -1, 0, 1, 3:
        refuse(f"count {count}", changed(good, count=count))
        refuse(f"count and delta of {count}", changed(good, count=count, last_offset_delta=count - 1))
    for codec in 5, 6, 7:
        refuse(f"codec {codec}", changed(good, attributes=codec))
    for codec in list(Codec)[1:]:
        refuse(f"garbage as {codec.name}", changed(with_body(good, b"garbage" * 5), attributes=codec))
    refuse("control batch", batch(b"\0\0\0\0\0\0", control=True))
    read_back(talk, topic)


@scenario("Produce", "refused as a whole")
def refused_as_a_whole(talk: Conversation) -> None:
    topic, other, good = talk.topic("topic", 2), talk.topic("other"), batch(b"a")
    for case, bad in {
        "a magic that is none": changed(good, sealed=False, magic=3),
        "a length that is none": changed(good, sealed=False, length=3),
        "a corrupt checksum": changed(good, sealed=False, crc=3),
        "a batch of a transaction": batch(b"b", transactional=True),
        "a transactional control batch": batch(b"\0\0\0\0\0\0", control=True, transactional=True),
        "an old magic": old_message(1),
        "two batches, the second of a transaction": good + batch(b"b", transactional=True),
        "nothing": b"",
    }.items():
        produce(talk, f"{case} beside a good batch", (topic, [(0, good), (1, bad)]), (other, [(0, good)]))
        produce(talk, f"{case} for a missing partition", (topic, [(9, bad)]))
        produce(talk, f"{case} with invalid acks", (topic, [(0, bad)]), acks=5)
    ids = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0}
    produce(
        talk, "a producer's batch of a transaction", (topic, [(0, batch(b"b", transactional=True, **ids))])
    )
    produce(talk, "a transactional id and a plain batch", (topic, [(0, good)]), transactional_id="tx")
    produce(talk, "an empty transactional id", (topic, [(0, good)]), transactional_id="")
    for name, partition in (topic, 0), (topic, 1), (other, 0):
        read_back(talk, name, partition=partition)


@scenario("Produce", "malformed records")
def malformed_records(talk: Conversation) -> None:
    topic = talk.topic("topic")
    good = batch(b"value", b"another")
    body = good[61:]

    def refuse(case: str, data: bytes) -> None:
        produce(talk, case, (topic, [(0, with_body(good, data))]))

    refuse("no records", b"")
    refuse("one record of two", body[: len(body) // 2 + 1])
    refuse("bytes after the records", body + b"\0\0\0")
    refuse("a record that is too long", b"\xfe\x01" + body[1:])
    refuse("a record of negative length", b"\x01" + body[1:])
    refuse("a varint that does not end", b"\xff" * 12)
    one = batch(b"v", key=None)
    for case, change in {
        "offset delta of 1": (3, 2),
        "key length of -2": (4, 3),
        "value too long": (5, 60),
        "header count of -1": (7, 1),
        "header count of 63": (7, 126),
        "header key of -1": (8, 1),
        "attributes": (1, 0x55),
    }.items():
        data = bytearray(one[61:])
        data[change[0]] = change[1]
        produce(talk, case, (topic, [(0, with_body(one, bytes(data)))]))
    deltas = batch(b"a", b"b")
    data = bytearray(deltas[61:])
    second = 1 + data[0] // 2
    data[second + 4] = 0
    produce(talk, "the same offset delta twice", (topic, [(0, with_body(deltas, bytes(data)))]))
    read_back(talk, topic)


@scenario("Produce", "topics with rules")
def rules(talk: Conversation) -> None:
    small = talk.topic("small", max_message_bytes="200")
    produce(talk, "too large", (small, [(0, batch(b"x" * 300))]))
    produce(talk, "too large beside one that fits", (small, [(0, batch(b"x" * 300)), (0, batch(b"y"))]))
    packed = batch(b"z" * 1000, codec=Codec.GZIP)
    produce(talk, "too large before compression only", (small, [(0, packed)]))
    compacted = talk.topic("compacted", cleanup_policy="compact")
    produce(talk, "a key", (compacted, [(0, batch(b"a"))]))
    produce(talk, "no key", (compacted, [(0, batch(b"a", b"b", key=None))]))
    some = records((b"k", START_MS), (None, START_MS), (b"k", START_MS), (None, START_MS), (None, START_MS))
    produce(talk, "some without a key", (compacted, [(0, some)]))
    packed = batch(b"a", b"b", key=None, codec=Codec.LZ4)
    produce(talk, "no key, compressed", (compacted, [(0, packed)]))
    many = records(*[(None, START_MS)] * 5)
    produce(talk, "five without a key", (compacted, [(0, many)]))
    produce(talk, "a tombstone", (compacted, [(0, batch(None))]))
    timely = talk.topic(
        "timely",
        message_timestamp_before_max_ms=str(2 * HOUR_MS),
        message_timestamp_after_max_ms=str(HOUR_MS),
    )
    produce(talk, "in time", (timely, [(0, batch(b"a"))]))
    late = records((b"k", START_MS), (b"k", START_MS - 5 * HOUR_MS), (b"k", START_MS + 5 * HOUR_MS))
    produce(talk, "out of time", (timely, [(0, late)]))
    produce(talk, "all out of time", (timely, [(0, records((b"k", 0)))]))
    produce(talk, "without a time", (timely, [(0, records((b"k", -1)))]))
    both = talk.topic("both", cleanup_policy="compact", message_timestamp_after_max_ms=str(HOUR_MS))
    mixed = records((None, START_MS), (b"k", START_MS + 5 * HOUR_MS), (None, START_MS + 5 * HOUR_MS))
    produce(talk, "out of time and without a key", (both, [(0, mixed)]))
    stamped = talk.topic("stamped", message_timestamp_type="LogAppendTime")
    produce(talk, "append time", (stamped, [(0, batch(b"a", b"b"))]))
    produce(talk, "append time, compressed", (stamped, [(0, batch(b"a", b"b", codec=Codec.ZSTD))]))
    produce(talk, "append time, out of time", (stamped, [(0, late)]))
    produce(talk, "append time, already claimed", (stamped, [(0, batch(b"a", log_append_time=5))]))
    for name in small, compacted, timely, both, stamped:
        read_back(talk, name)


@scenario("Produce", "compression of the topic", versions=[3, 7, 13])
def compression(talk: Conversation) -> None:
    for kind in "uncompressed", "gzip", "snappy", "lz4", "zstd":
        topic = talk.topic(kind, compression_type=kind)
        for codec in Codec:
            produce(talk, f"{codec.name} to {kind}", (topic, [(0, batch(b"a" * 50, b"b" * 50, codec=codec))]))
        stamped = talk.topic(f"{kind}-stamped", compression_type=kind, message_timestamp_type="LogAppendTime")
        produce(talk, f"append time to {kind}", (stamped, [(0, batch(b"a" * 50))]))
        small = talk.topic(f"{kind}-small", compression_type=kind, max_message_bytes="300")
        large = batch(b"z" * 2000, codec=Codec.GZIP)
        produce(talk, f"too large for {kind}, unpacked", (small, [(0, large)]))
        for name in topic, stamped, small:
            read_back(talk, name, decoded=True)


@scenario("Produce", "idempotent")
def idempotent(talk: Conversation) -> None:
    topic = talk.topic("topic", 3)

    def send(
        case: str, sequence: int, *values: bytes, partition: int = 0, epoch: int = 0, **more: Any
    ) -> None:
        options = {"producer_id": PRODUCER, "producer_epoch": epoch, "base_sequence": sequence} | more
        produce(talk, case, (topic, [(partition, batch(*values, **options))]))

    send("the first", 0, b"a", b"b")
    send("the next", 2, b"c")
    send("a duplicate of the last", 2, b"c")
    send("a duplicate of the first", 0, b"a", b"b")
    send("a part of the first", 0, b"a")
    send("a part of the first, from within", 1, b"b")
    send("a gap", 7, b"d")
    send("going on", 3, b"d", b"e", b"f")
    send("an overlap", 5, b"f", b"g")
    for sequence in range(6, 12):
        send(f"sequence {sequence}", sequence, b"x")
    send("a duplicate of long ago", 0, b"a", b"b")
    send("a duplicate of the fifth last", 7, b"x")
    send("a new epoch not from 0", 5, b"y", epoch=1)
    send("a new epoch", 0, b"y", epoch=2)
    send("an old epoch", 12, b"z", epoch=1)
    send("a negative epoch", 0, b"z", epoch=-1)
    send("a negative sequence", -1, b"z", epoch=2)
    send("a negative epoch of a new producer", 0, b"z", epoch=-1, producer_id=PRODUCER + 5)
    send("a producer id below -1", 0, b"z", producer_id=-5)
    send("an unknown producer not from 0", 5, b"a", partition=1)
    send("its next", 6, b"b", partition=1)
    send("before its first", 4, b"b", partition=1)
    send("the largest sequence", 2**31 - 1, b"a", partition=2)
    send("back to 0", 0, b"b", partition=2)
    send("wrapped in a batch", 2**31 - 2, b"a", b"b", b"c", partition=2, producer_id=PRODUCER + 1)
    send("after the wrap", 1, b"d", partition=2, producer_id=PRODUCER + 1)
    for partition in 0, 1, 2:
        read_back(talk, topic, partition=partition)
    asked = {"topics": [{"name": topic, "partition_indexes": [0, 1, 2]}]}
    talk.ask("the producers", asked, api="DescribeProducers", version=0, adjust=producers_in_order)


def producers_in_order(tree: Any) -> Any:
    for topic in tree["topics"]:
        for partition in topic["partitions"]:
            partition["active_producers"].sort(key=lambda producer: producer["producer_id"])
    return tree


@scenario("Produce", "no acknowledgement")
def no_acknowledgement(talk: Conversation) -> None:
    topic = talk.topic("topic", max_message_bytes="200")
    good = batch(b"a")

    def send(case: str, *wanted: Wanted) -> None:
        talk.send_without_answer(case, request(talk, *wanted, acks=0))

    send("taken", (topic, [(0, good)]))
    send("unknown topic", (talk.name("missing"), [(0, good)]))
    send("unknown partition", (topic, [(5, good)]))
    send("too large", (topic, [(0, batch(b"x" * 300))]))
    send("corrupt", (topic, [(0, changed(good, sealed=False, crc=1))]))
    send("no topics")
    send("two batches", (topic, [(0, good + good)]))
    read_back(talk, topic)
