"""`moldau message produce`: messages from arguments, a file or stdin into a topic.

Messages keep their order per partition. A retry after a lost answer can store one twice, unless `--idempotent`,
which is not the default because librdkafka needs half a second to begin with it. The first failure ends the
reading, and the command fails with its reason, and with how many messages are stored all the same; so does Ctrl-C.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import click

from moldau.cli.client import Connection
from moldau.cli.complete import files, topic_names
from moldau.cli.errors import CliError, file_error, not_found, usage
from moldau.cli.help import Command
from moldau.cli.message_format import ENCODINGS, Headers, LineReader, Outgoing, decode, read_json, unescape
from moldau.cli.message_progress import EVERY_S, Progress
from moldau.cli.offsets import Kind, parse_position
from moldau.cli.options import Target, Whole, cluster_options, json_option, parse_pairs
from moldau.cli.output import count_of, note, print_json

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUEUE_KBYTES_MAX = 64 << 10
CHUNK_BYTES = 64 << 10
MESSAGE_TIMEOUT_S_MIN = 30.0
POLL_EVERY = 100  # messages; deliveries are only counted, so nobody waits for them
UNASSIGNED = -1  # librdkafka's "the partitioner decides"


@click.command(
    cls=Command,
    examples="""
# Messages as arguments, or one per line of stdin
moldau message produce orders 'first' 'second'
moldau message produce orders < orders.txt
# Keys before the first colon, and a header on every message
moldau message produce orders -K : --header source=shop < orders.txt
# A tombstone: the key with a null value
moldau message produce customers --key 17 --null NULL NULL
# JSON lines, as `consume --json` writes them
echo '{"key": "17", "value": {"total": 3}, "headers": {"a": "b"}}' |
  moldau message produce orders --json-input
# A whole file as one message
moldau message produce pictures --whole --file cat.png
""",
)
@click.argument("topic", shell_complete=topic_names)
@click.argument("values", nargs=-1, metavar="[VALUE...]")
@click.option(
    "-f", "--file", "path", metavar="FILE", help="Read from a file instead of stdin.", shell_complete=files
)
@click.option("-k", "--key", metavar="TEXT", help="The key of every message.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Split each line into key and value here.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header for every message; may be repeated.",
)
@click.option("-p", "--partition", type=Whole(0), metavar="N", help="The partition, instead of the key's.")
@click.option(
    "--timestamp", metavar="TIME", help="2026-07-31T10:00, @MILLISECONDS or a time ago (-1h).  [default: now]"
)
@click.option("--key-as", type=click.Choice(ENCODINGS), default="text", help="How keys are written.")
@click.option("--value-as", type=click.Choice(ENCODINGS), default="text", help="How values are written.")
@click.option("--null", metavar="TEXT", help="A key or value that reads like this is null.")
@click.option(
    "--delimiter", default="\\n", metavar="TEXT", show_default=True, help="What separates messages."
)
@click.option(
    "--json-input",
    is_flag=True,
    help="Each line is a JSON object with value, key, headers, timestamp.",
)
@click.option(
    "--keep-partitions", is_flag=True, help="With --json-input: use the partition that stands there."
)
@click.option("--whole", is_flag=True, help="The whole input is one message.")
@click.option(
    "-z", "--codec", type=click.Choice(CODECS), default="none", show_default=True, help="Compression."
)
@click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True, help="Who must have it."
)
@click.option("--idempotent", is_flag=True, help="Store each message once, also when a request is repeated.")
@cluster_options
@json_option()
def produce(
    topic: str,
    values: tuple[str, ...],
    path: str | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp: str | None,
    key_as: str,
    value_as: str,
    null: str | None,
    delimiter: str,
    json_input: bool,
    keep_partitions: bool,
    whole: bool,
    codec: str,
    acks: str,
    idempotent: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Send messages to a topic, from arguments or one per line of stdin."""
    check_options(values, path, key, key_separator, json_input, whole)
    if idempotent and acks != "all":
        raise usage("--idempotent needs --acks all.")
    separator = unescape(key_separator).encode() if key_separator is not None else None
    line_reader = LineReader(separator, null.encode() if null is not None else None, key_as, value_as)
    defaults = Outgoing(
        value=None,
        key=decode(key.encode(), key_as, "--key") if key is not None else None,
        headers=header_list(headers) or None,
        partition=partition,
        timestamp_ms=timestamp_ms(timestamp),
    )
    connection = Connection(target)
    producer = connection.producer(
        acks=acks,
        enable_idempotence=idempotent,
        # Without idempotence, a retry could overtake what is under way behind it.
        **({} if idempotent else {"max_in_flight": 1}),
        compression_type=codec,
        linger_ms=5,
        message_timeout_ms=int(max(MESSAGE_TIMEOUT_S_MIN, target.timeout_s) * 1000),
        topic_metadata_propagation_max_ms=int(target.timeout_s * 1000),
        queue_buffering_max_kbytes=QUEUE_KBYTES_MAX,
        message_max_bytes=1_000_000_000,  # the topic's limit counts, not the client's
    )
    pieces = pieces_of(values, path, unescape(delimiter).encode(), whole)
    outgoing: Iterable[Outgoing] = map(read_json if json_input else line_reader, pieces, itertools.count(1))
    if json_input and not keep_partitions:
        outgoing = (message._replace(partition=None) for message in outgoing)
    if any(default is not None for default in defaults):
        outgoing = (with_defaults(message, defaults) for message in outgoing)
    delivery = Delivery(topic, "sent" if acks == "0" else "stored")
    is_piped = not values and (path is not None or not sys.stdin.isatty())
    progress = Progress(lambda: delivery.messages, wanted=is_piped)
    try:
        send(producer, connection, outgoing, delivery, progress)
    except CliError as error:
        raise CliError(f"{error.message}{delivery.remainder}", error.hint, error.code) from error.__cause__
    except (KeyboardInterrupt, SystemError):  # the latter is Ctrl-C within a callback of the client
        note(f"Interrupted.{delivery.remainder}")
        raise
    finally:
        progress.clear()
    delivery.report(as_json)


def check_options(
    values: tuple[str, ...],
    path: str | None,
    key: str | None,
    key_separator: str | None,
    json_input: bool,
    whole: bool,
) -> None:
    if values and path:
        raise usage("Values as arguments and --file exclude each other.")
    if key is not None and key_separator is not None:
        raise usage("--key and --key-separator exclude each other.")
    if key_separator == "":
        raise usage("--key-separator is empty.", "Give the text between key and value, such as : or \\t.")
    if json_input and (whole or key_separator is not None):
        raise usage("--json-input excludes --whole and --key-separator.", "Keys stand in the JSON objects.")


def header_list(headers: Iterable[str]) -> Headers:
    return [
        (name, value.encode())
        for header in headers
        for name, value in parse_pairs([header], "--header").items()
    ]


def timestamp_ms(text: str | None) -> int | None:
    if text is None:
        return None
    position = parse_position(text)
    if position.kind is not Kind.TIME:
        raise usage(f"'{text}' is no time.", "Write 2026-07-31T10:00, @MILLISECONDS or a time ago (-1h).")
    return position.value


def with_defaults(message: Outgoing, defaults: Outgoing) -> Outgoing:
    """What the message leaves open, taken from the options; headers are added."""
    return Outgoing(
        message.value,
        defaults.key if message.key is None else message.key,
        [*(defaults.headers or ()), *(message.headers or ())] or None,
        defaults.partition if message.partition is None else message.partition,
        defaults.timestamp_ms if message.timestamp_ms is None else message.timestamp_ms,
    )


def pieces_of(values: tuple[str, ...], path: str | None, delimiter: bytes, whole: bool) -> Iterator[bytes]:
    """The input, cut into messages."""
    if values:
        yield from (value.encode("utf-8", "surrogateescape") for value in values)
        return
    try:
        with open(path, "rb") if path else sys.stdin.buffer as stream:
            if not path and sys.stdin.isatty():
                note("Type messages, one per line; Ctrl-D ends.")
            yield from [stream.read()] if whole else split(stream, delimiter)
    except OSError as error:
        raise file_error(error, path or "stdin") from error


def split(stream: IO[bytes], delimiter: bytes) -> Iterator[bytes]:
    """What stands between delimiters; after the last one only if something does."""
    if not delimiter:
        raise usage("--delimiter is empty.", "Use --whole to send the input as one message.")
    if delimiter == b"\n":
        for line in stream:  # hands out a line as soon as it is there, also from a slow pipe
            yield line.removesuffix(b"\n")
        return
    rest = b""
    while chunk := stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
        *complete, rest = (rest + chunk).split(delimiter)
        yield from complete
    if rest:
        yield rest


@dataclass
class Delivery:
    """What the cluster acknowledged, and the first thing it refused."""

    topic: str
    done: str = "stored"
    """What is known of them; with acks=0 only that they were sent."""
    read: int = 0
    messages: int = 0
    unknown: int = 0
    """Sent, and not answered: they may be stored or not."""
    # Partition: first and last offset; with acks=0 nobody says which offset a message got.
    offsets: dict[int, list[int | None]] = field(default_factory=dict)
    failure: KafkaError | None = None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = self.failure or error
            self.unknown += error.code() in unanswered()
            return
        self.messages += 1
        offset = message.offset()
        bounds = self.offsets.get(message.partition())
        if bounds is None:
            bounds = self.offsets[message.partition()] = [offset, offset]
        bounds[1] = offset

    @property
    def remainder(self) -> str:
        """What stays behind a command that failed: ` 7 messages are stored.`, or nothing where it read one at most."""
        if self.read < 2 and not self.messages:
            return ""
        stored = f"{count_of(self.messages, 'message')} {'is' if self.messages == 1 else 'are'} {self.done}"
        if self.unknown:
            stored += f", and perhaps {self.unknown:,} more that {'was' if self.unknown == 1 else 'were'} not answered"
        return f" {stored}."

    def report(self, as_json: bool) -> None:
        partitions = sorted(self.offsets.items())
        if as_json:
            print_json(
                {
                    "topic": self.topic,
                    "messages": self.messages,
                    "partitions": [
                        {"partition": partition, "first_offset": first, "last_offset": last}
                        for partition, (first, last) in partitions
                    ],
                }
            )
        elif sys.stderr.isatty():
            note(f"{count_of(self.messages, 'message')} sent to {self.topic}{places(partitions)}.")


def unanswered() -> tuple[int, ...]:
    """Error codes of a message that was on its way, or may have been."""
    from confluent_kafka import KafkaError

    return (
        KafkaError._PURGE_INFLIGHT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )


def places(partitions: list[tuple[int, list[int | None]]]) -> str:
    if len(partitions) != 1 or partitions[0][1][0] is None:
        return f" in {count_of(len(partitions), 'partition')}" if partitions else ""
    partition, (first, last) = partitions[0]
    return f", partition {partition}, offset {first}" + (f" to {last}" if last != first else "")


def send(
    producer: Producer,
    connection: Connection,
    outgoing: Iterable[Outgoing],
    delivery: Delivery,
    progress: Progress,
) -> None:
    try:
        for message in outgoing:
            delivery.read += 1
            enqueue(producer, delivery, message, progress)
            if delivery.read % POLL_EVERY == 0 or time.monotonic() >= progress.due_s:
                producer.poll(0)
                progress.show(delivery.read)
                if delivery.failure is not None:
                    break
    finally:
        # Also after Ctrl-C or a bad line: what was read before must have its answer.
        while delivery.failure is None and producer.flush(EVERY_S):
            progress.show(delivery.read)
    if delivery.failure is not None:
        producer.purge()
        producer.flush(1)
        raise explain_failure(connection, delivery)


def enqueue(producer: Producer, delivery: Delivery, message: Outgoing, progress: Progress) -> None:
    value, key, headers, partition, timestamp_ms = message
    while delivery.failure is None:
        try:
            producer.produce(
                delivery.topic,
                value,
                key,
                UNASSIGNED if partition is None else partition,
                delivery.on_delivery,
                None,
                timestamp_ms or 0,
                headers,
            )
            return
        except BufferError:  # the queue is full: wait for the cluster
            producer.poll(0.1)
            progress.show(delivery.read)


def explain_failure(connection: Connection, delivery: Delivery) -> CliError:
    from confluent_kafka import KafkaError as Code

    assert delivery.failure is not None
    code = delivery.failure.code()
    if code == Code._UNKNOWN_PARTITION:
        return not_found(f"Topic '{delivery.topic}' has no such partition.", "See `moldau topic describe`.")
    if code != Code._MSG_TIMED_OUT:
        return connection.explain(delivery.failure, subject=delivery.topic)
    if connection.answers():
        return CliError(
            f"{delivery.topic}: The cluster answers, but did not store a message within the time-out.",
            "Too few replicas may be in sync, or a disk full: see `moldau cluster health`. --timeout waits longer.",
        )
    return connection.silent()
