"""Members of a group, each in a process of its own, and what they have told so far."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.apache_kafka import Distribution

TIMEOUT_S = 60
SCRIPT = Path(__file__).with_name("group_member.py")


class Member:
    """Reads what the process tells in a thread; `owned` follows its assignments."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.owned: set[int] = set()
        self.messages: list[tuple[int, int, str]] = []
        self.failures: list[str] = []
        self.assignments = 0
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.hear(json.loads(line))

    def hear(self, news: dict[str, Any]) -> None:
        match news:
            case {"assigned": partitions}:
                self.owned |= set(partitions)
                self.assignments += 1
            case {"revoked": partitions} | {"lost": partitions}:
                self.owned -= set(partitions)
            case {"message": [partition, offset, value]}:
                self.messages.append((partition, offset, value))
            case {"failed": reason}:
                self.failures.append(reason)
            # Kafka's VerifiableConsumer
            case {"name": "partitions_assigned", "partitions": places}:
                self.owned |= {place["partition"] for place in places}
                self.assignments += 1
            case {"name": "partitions_revoked", "partitions": places}:
                self.owned -= {place["partition"] for place in places}
            case {"name": "record_data", "partition": partition, "offset": offset, "value": value}:
                self.messages.append((partition, offset, value))

    @property
    def values(self) -> set[str]:
        return {value for _, _, value in self.messages}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._thread.join(TIMEOUT_S)
        self.owned.clear()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """Cleanly, with a LeaveGroup."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self._thread.join(TIMEOUT_S)
        self.owned.clear()


class Party:
    """The members of one group on one topic; whoever is left at the end of the block is ended."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self.members: list[Member] = []

    def join(
        self, kind: str, *, assignor: str = "range", instance: str = "", protocol: str = "classic"
    ) -> Member:
        settings = {
            "kind": kind,
            "bootstrap": self._bootstrap,
            "topic": self._topic,
            "group": self._group,
            "client_id": f"{kind}-{len(self.members)}",
            "assignor": assignor,
            "instance": instance,
            "protocol": protocol,
        }
        return self._add(settings["client_id"], [sys.executable, str(SCRIPT), json.dumps(settings)])

    def join_java(self, kafka: Distribution, *, protocol: str = "classic") -> Member:
        """Kafka's VerifiableConsumer, which commits what it has read."""
        arguments = ["--bootstrap-server", self._bootstrap, "--topic", self._topic]
        arguments += ["--group-id", self._group, "--reset-policy", "earliest", "--verbose"]
        arguments += ["--group-protocol", protocol]
        if protocol == "classic":
            strategy = "org.apache.kafka.clients.consumer.RangeAssignor"
            arguments += ["--session-timeout", "6000", "--assignment-strategy", strategy]
        return self._add("java", kafka.command("verifiable-consumer", *arguments))

    def _add(self, name: str, command: list[str]) -> Member:
        member = Member(name, command)
        self.members.append(member)
        return member

    @property
    def present(self) -> list[Member]:
        return [member for member in self.members if member.process.poll() is None]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            state = {member.name: (sorted(member.owned), len(member.messages)) for member in self.members}
            assert time.monotonic() < deadline, f"{what}: {state}"
            time.sleep(0.05)

    def wait_shared(self, partitions: int, *members: Member) -> None:
        """Until every partition has one owner among these members, and each of them has some."""
        chosen = members or tuple(self.present)

        def is_shared() -> bool:
            owned = [partition for member in chosen for partition in member.owned]
            return sorted(owned) == list(range(partitions)) and all(member.owned for member in chosen)

        self.wait_until(is_shared, f"{partitions} partitions shared by {[m.name for m in chosen]}")

    def wait_read(self, values: set[str]) -> None:
        """Until all of them together have read these."""
        self.wait_until(
            lambda: values <= set().union(*(member.values for member in self.members)), "all to be read"
        )

    def __enter__(self) -> Party:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.resume()
                member.process.kill()
            member.process.wait(TIMEOUT_S)
