"""Kafka's own Java console tools. A JVM start costs a second, so a call does all that one run can."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kio.schema.errors import ErrorCode

from bench.apache_kafka import TOOL_JVM, ToolFailed, ToolRun, distribution

from .base import TIMEOUT_S, Client, Message, Received, Refused

NULL = "\\N"
SEPARATOR = "\x1f"
MESSAGE_END = "\x1e\n"
SUBCOMMAND_FIRST = {"cluster"}
EXCEPTIONS = {
    "InvalidConfigurationException": ErrorCode.invalid_config,
    "InvalidPartitionsException": ErrorCode.invalid_partitions,
    "InvalidReplicationFactorException": ErrorCode.invalid_replication_factor,
    "InvalidTopicException": ErrorCode.invalid_topic_exception,
    "RecordTooLargeException": ErrorCode.message_too_large,
    "TopicExistsException": ErrorCode.topic_already_exists,
    "UnknownTopicOrPartitionException": ErrorCode.unknown_topic_or_partition,
}


class JavaTools(Client):
    name = "java-tools"
    chooses_partitions = False
    sets_timestamps = False
    carries_any_bytes = False
    checks_configs_itself = True
    replaces_configs = False

    def run(self, tool: str, *arguments: str, stdin: str = "") -> ToolRun:
        address: tuple[str, ...] = ("--bootstrap-server", self.bootstrap_servers)
        with tempfile.TemporaryDirectory() as folder, _refusals():
            if settings := self.security.java():
                file = Path(folder) / "client.properties"
                file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
                address += ("--command-config", str(file))
            words = (*arguments, *address) if tool in SUBCOMMAND_FIRST else (*address, *arguments)
            jvm = [*TOOL_JVM, *self.security.java_flags()]
            return distribution().run(tool, *words, stdin=stdin, timeout_s=TIMEOUT_S * 2, jvm=jvm)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        reader = {
            "parse.key": "true",
            "parse.headers": "true",
            "key.separator": SEPARATOR,
            "headers.delimiter": SEPARATOR,
            "headers.separator": ",",
            "headers.key.separator": "=",
            "null.marker": NULL,
        }
        properties = [word for item in reader.items() for word in ("--reader-property", "=".join(item))]
        done = self.run(
            "console-producer",
            *("--topic", topic, "--compression-codec", codec, "--request-required-acks", "all"),
            *("--command-property", f"enable.idempotence={str(idempotent).lower()}"),
            *("--command-property", "max.request.size=10000000", *properties),
            stdin="".join(_line(message) for message in messages),
        )
        if "ERROR" in done.stderr:  # the console producer logs a failed send and ends with 0
            raise _refusal(done.stderr)

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        formatter = {
            "print.timestamp": "true",
            "print.offset": "true",
            "print.headers": "true",
            "print.key": "true",
            "key.separator": SEPARATOR,
            "line.separator": MESSAGE_END,
            "headers.separator": ",",
            "null.literal": NULL,
        }
        properties = [word for item in formatter.items() for word in ("--formatter-property", "=".join(item))]
        done = self.run(
            "console-consumer",
            *("--topic", topic, "--partition", str(partition), "--offset", str(offset)),
            *("--max-messages", str(count), "--timeout-ms", str(TIMEOUT_S * 1000), *properties),
        )
        return [_received(line) for line in done.stdout.split(MESSAGE_END)[:-1]]

    def read_in_group(self, topic: str, group: str, count: int) -> list[bytes | None]:
        done = self.run(
            "console-consumer",
            *("--topic", topic, "--group", group, "--from-beginning", "--isolation-level", "read_committed"),
            *("--max-messages", str(count), "--timeout-ms", str(TIMEOUT_S * 1000)),
        )
        return [line.encode() for line in done.stdout.splitlines()]

    def transact(self, topic: str, values: Sequence[bytes], transactional_id: str) -> None:
        """One value as often as there are some: the tool picks payloads at random."""
        (value,) = set(values)
        with tempfile.NamedTemporaryFile(suffix=".txt") as payloads:
            Path(payloads.name).write_bytes(value)
            self.run(
                "producer-perf-test",
                *("--topic", topic, "--num-records", str(len(values)), "--throughput", "-1"),
                *("--payload-file", payloads.name, "--transactional-id", transactional_id),
                *("--transaction-duration-ms", "10000"),
            )

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self.offset_at(topic, -2, partition), self.offset_at(topic, -1, partition)

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int:
        place = f"{topic}:{partition}"
        printed = self.run(
            "get-offsets", "--topic-partitions", place, "--time", str(timestamp_ms)
        ).stdout.strip()
        if not printed and timestamp_ms >= 0:  # it prints nothing where no message is that young
            return self.offset_at(topic, -1, partition)
        assert printed.startswith(place + ":"), printed
        return int(printed.removeprefix(place + ":"))

    def topics(self) -> dict[str, int]:
        printed = self.run("topics", "--describe").stdout
        found = re.findall(r"^Topic: (\S+)\s.*PartitionCount: (\d+)", printed, re.MULTILINE)
        return {name: int(count) for name, count in found}

    def create(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        settings = [word for item in (configs or {}).items() for word in ("--config", "=".join(item))]
        self.run(
            "topics",
            *("--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1"),
            *settings,
        )

    def delete(self, topic: str) -> None:
        self.run("topics", "--delete", "--topic", topic)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        printed = self.run(
            "configs", "--entity-type", "topics", "--entity-name", topic, "--describe", "--all"
        )
        found = re.findall(r"^\s+(\S+?)=(.*?) sensitive=", printed.stdout, re.MULTILINE)
        return {name: None if value == "null" else value for name, value in found}

    def alter_configs(self, topic: str, *, put: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        changes = []
        if put:
            changes += ["--add-config", ",".join(f"{key}=[{value}]" for key, value in put.items())]
        if remove:
            changes += ["--delete-config", ",".join(remove)]
        self.run("configs", "--entity-type", "topics", "--entity-name", topic, "--alter", *changes)


def _line(message: Message) -> str:
    headers = ",".join(f"{name}={value.decode()}" for name, value in message.headers)
    fields = [headers or NULL, _text(message.key), _text(message.value)]
    return SEPARATOR.join(fields) + "\n"


def _text(data: bytes | None) -> str:
    return NULL if data is None else data.decode()


def _bytes(text: str) -> bytes | None:
    return None if text == NULL else text.encode()


def _received(line: str) -> Received:
    timestamp, offset, headers, key, value = line.split(SEPARATOR)
    pairs = (pair.partition(":") for pair in headers.split(",") if headers != "NO_HEADERS")
    return Received(
        value=_bytes(value),
        key=_bytes(key),
        headers=tuple((name, text.encode()) for name, _, text in pairs),
        timestamp_ms=int(timestamp.partition(":")[2]),
        offset=int(offset.partition(":")[2]),
    )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ToolFailed as failed:
        raise _refusal(str(failed)) from failed


def _refusal(printed: str) -> Exception:
    found = re.search(r"org\.apache\.kafka\.common\.errors\.(\w+): (.*)", printed)
    if found is None:
        return AssertionError(printed)
    return Refused(EXCEPTIONS.get(found[1], ErrorCode.unknown_server_error), found[2])
