"""kcat: librdkafka from the command line. It writes lines, one set of headers a run; it has no admin side."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from .base import TIMEOUT_S, Client, Message, Received, Refused

FIELDS = "%o\\t%T\\t%K\\t%S\\t%h\\n%k%s\\n"
KEY_DELIMITER = "\\x1f"
ERRORS = {"Broker: Message size too large": ErrorCode.message_too_large}


class Kcat(Client):
    name = "kcat"
    sends_nulls_only = False
    sets_timestamps = False
    carries_any_bytes = False
    administers = False
    alters_incrementally = False
    replaces_configs = False
    transacts = False
    # As Debian builds it: it cannot fetch tokens, and its librdkafka is older than 2.6.1. The nonce in the last message
    # of its SCRAM is another than it has to be, which Kafka has refused since 3.7.2 (CVE-2024-56128).
    mechanisms = ("PLAIN",)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        settings = ["-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "acks=all"]
        for (headers, flags), run in itertools.groupby(messages, _line_style):
            options = [word for name, value in headers for word in ("-H", f"{name}={value.decode()}")]
            lines = b"".join(_line(message) + b"\n" for message in run)
            self._kcat(
                *("-P", "-t", topic, "-p", str(partition), "-z", codec),
                *(*settings, "-X", "linger.ms=20", "-K", KEY_DELIMITER, *flags, *options),
                stdin=lines,
            )

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        printed = self._kcat(
            *("-C", "-q", "-t", topic, "-p", str(partition), "-o", str(offset)),
            *("-e", "-c", str(count), "-f", FIELDS, "-X", "check.crcs=true"),
        )
        received = []
        while printed:
            head, _, rest = printed.partition(b"\n")
            at, timestamp_ms, key_size, value_size, headers = head.split(b"\t")
            key, rest = _take(rest, int(key_size))
            value, rest = _take(rest, int(value_size))
            received.append(Received(value, key, _headers(headers.decode()), int(timestamp_ms), int(at)))
            printed = rest[1:]
        return received

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int:
        found = self._query(topic, partition, timestamp_ms)
        return found if found >= 0 else self._query(topic, partition, -1)

    def _query(self, topic: str, partition: int, when: int) -> int:
        printed = self._kcat("-Q", "-t", f"{topic}:{partition}:{when}").decode()
        found = re.search(r"offset (-?\d+)", printed)
        assert found, printed
        return int(found[1])

    def topics(self) -> dict[str, int]:
        listed = json.loads(self._kcat("-L", "-J"))
        return {topic["topic"]: len(topic["partitions"]) for topic in listed["topics"]}

    def read_in_group(self, topic: str, group: str, count: int) -> list[bytes | None]:
        settings = ("-X", "auto.offset.reset=earliest", "-X", "isolation.level=read_committed")
        printed = self._kcat("-q", *settings, "-c", str(count), "-G", group, topic)
        return list(printed.splitlines())

    def _settings(self) -> list[str]:
        return [
            word for key, value in self.security.librdkafka().items() for word in ("-X", f"{key}={value}")
        ]

    def _kcat(self, *arguments: str, stdin: bytes = b"") -> bytes:
        kcat = shutil.which("kcat")
        assert kcat, "the clients fixture makes sure that kcat is there"
        done = subprocess.run(
            [kcat, "-b", self.bootstrap_servers, *self._settings(), *arguments],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            printed = done.stderr.decode(errors="replace")
            codes = (code for text, code in ERRORS.items() if text in printed)
            raise Refused(next(codes, ErrorCode.unknown_server_error), printed)
        return done.stdout


def _line_style(message: Message) -> tuple[tuple[tuple[str, bytes], ...], tuple[str, ...]]:
    """The options that a message needs; messages of one style go in one run. -Z makes empty fields null."""
    return message.headers, ("-Z",) if message.value is None else ()


def _line(message: Message) -> bytes:
    key = b"" if message.key is None else message.key + b"\x1f"
    return key + (message.value or b"")


def _take(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, data) if size < 0 else (data[:size], data[size:])


def _headers(printed: str) -> tuple[tuple[str, bytes], ...]:
    pairs = (pair.partition("=") for pair in printed.split(",") if pair)
    return tuple((name, value.encode()) for name, _, value in pairs)
