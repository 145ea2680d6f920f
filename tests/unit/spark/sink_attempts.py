"""Attempts of exactly-once tasks as Spark would start them, without Spark; and what readers of the topic see.

As a program it is one attempt in a process of its own: `sink_attempts.py SERVERS TOPIC VERSION FIRST LAST [STEP]` kills
itself with -9 when it has reached that step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from moldau.spark.topic_sink.exactly_once import ExactlyOnceTask, TaskIdentity, Written
from moldau.spark.topic_sink.options import SinkOptions
from moldau.spark.topic_sink.rows import Cells, Rows

Reached = Callable[[str], None]

STEPS = (
    "begin",
    "marker read",
    "fenced the others",
    "marker read again",
    "rows sent",
    "rows delivered",
    "marked",
    "committed",
)
APPLICATION = "query"


def values(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def nothing(step: str) -> None:
    pass


@dataclass(frozen=True)
class Sink:
    """A topic that tasks write to."""

    servers: str
    topic: str

    def options(self, **more: str) -> SinkOptions:
        options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, "exactlyOnce": "true"}
        return SinkOptions.of(
            options | {name.replace("_", "."): value for name, value in more.items()}, streaming=True
        )

    def batches(self, rows: list[bytes], size: int = 10) -> Iterator[Rows]:
        for start in range(0, len(rows), size):
            yield Rows(self.topic, None, Cells.of_values(rows[start : start + size]), None, None)

    def attempt(
        self,
        version: int,
        rows: list[bytes],
        reached: Reached = nothing,
        *,
        options: SinkOptions | None = None,
        application: str = APPLICATION,
        partition: int = 0,
        run: str | None = None,
    ) -> Written:
        identity = TaskIdentity(application, version, partition, run)
        return ExactlyOnceTask(options or self.options(), identity, reached).write(self.batches(rows))

    def in_a_process(self, version: int, first: int, last: int, step: str = "") -> int:
        """The attempt's exit code: -9 where it was killed."""
        command = [
            sys.executable,
            __file__,
            self.servers,
            self.topic,
            str(version),
            str(first),
            str(last),
            step,
        ]
        return subprocess.run(command, timeout=120, check=False).returncode

    def committed(self) -> list[bytes]:
        from spark.sink_readers import committed  # not where this is a program

        return sorted(committed(self.servers, self.topic))


def main() -> None:
    servers, topic, version, first, last, step = sys.argv[1:]

    def reached(now: str) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGKILL)

    Sink(servers, topic).attempt(int(version), values(int(first), int(last)), reached)


if __name__ == "__main__":
    main()
