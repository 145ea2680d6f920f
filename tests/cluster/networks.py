"""A network for the brokers of a test, whose links are cut and slowed down by name: a namespace for each broker, and
one between them.

Packets go from a broker through a namespace that forwards them, to the others and to this process; a cut is a rule
there that drops what one address sends to another, without a word, as a broken cable does. This process has two
addresses: one for clients, one for the cluster store, so that a broker can be cut off from the store alone. Linux, as
root.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from needs import missing

STORE = 0
"""In place of a broker's id: where the store is."""
_numbers = itertools.count(os.getpid())


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


class Network:
    def __init__(self, brokers: int) -> None:
        number = next(_numbers) % 100
        self._prefix = f"10.{100 + number}"
        self._name = f"mo{os.getpid() % 100_000}n{number}"
        self._ids = range(1, brokers + 1)
        self._cuts: list[tuple[str, str]] = []
        self.store_address = f"{self._prefix}.0.3"

    def address(self, broker_id: int) -> str:
        return self.store_address if broker_id == STORE else f"{self._prefix}.{broker_id}.2"

    def command(self, broker_id: int) -> list[str]:
        """What a command begins with that is to run in the broker's place."""
        return ["ip", "netns", "exec", f"{self._name}b{broker_id}"]

    # What is cut

    def cut(self, one: int, *others: int, both_ways: bool = True) -> None:
        """Drop what one sends to the others and, unless only one way is to be cut, what they send to it."""
        for other in others:
            self._drop(one, other)
            if both_ways:
                self._drop(other, one)

    def _drop(self, sender: int, receiver: int) -> None:
        rule = self.address(sender), self.address(receiver)
        if rule not in self._cuts:
            self._in_the_middle(
                "ip", "rule", "add", "from", rule[0], "to", rule[1], "blackhole", "pref", "100"
            )
            self._cuts.append(rule)

    def heal(self) -> None:
        for sender, receiver in self._cuts:
            self._in_the_middle(
                "ip", "rule", "del", "from", sender, "to", receiver, "blackhole", "pref", "100"
            )
        self._cuts.clear()

    # What is slow

    def slow_down(self, broker_id: int, rate_kbit: int, wait_ms: int) -> None:
        """What the broker sends and gets passes no faster than that; what would wait for longer is dropped."""
        words = f"tbf rate {rate_kbit}kbit burst 8kb latency {wait_ms}ms".split()
        self._queue(broker_id, "replace", *words)

    def speed_up(self, broker_id: int) -> None:
        self._queue(broker_id, "del")

    def _queue(self, broker_id: int, what: str, *words: str) -> None:
        for place, device in (
            ([], self._ours(broker_id)),
            (self.command(broker_id), self._theirs(broker_id)),
        ):
            command = ["tc", "qdisc", what, "dev", device, "root", *words]
            if place:
                subprocess.run([*place, *command], check=True, capture_output=True, timeout=20)
            else:
                self._in_the_middle(*command)

    # How it is made

    def make(self) -> None:
        ip("netns", "add", self._name)
        self._in_the_middle("sysctl", "-qw", "net.ipv4.ip_forward=1")
        for broker_id in self._ids:
            self._make_place(broker_id)
        self._link(0, f"{self._prefix}.0.1/29")
        for last in (2, 3):
            ip("addr", "add", f"{self._prefix}.0.{last}/29", "dev", f"{self._name}w0")
        ip("link", "set", f"{self._name}w0", "up")
        ip(
            "route",
            "add",
            f"{self._prefix}.0.0/16",
            "via",
            f"{self._prefix}.0.1",
            "src",
            f"{self._prefix}.0.2",
        )

    def _make_place(self, broker_id: int) -> None:
        place, device = f"{self._name}b{broker_id}", self._theirs(broker_id)
        ip("netns", "add", place)
        self._link(broker_id, f"{self._prefix}.{broker_id}.1/30")
        ip("link", "set", device, "netns", place)
        for words in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address(broker_id)}/30", "dev", device],
            ["link", "set", device, "up"],
            ["route", "add", "default", "via", f"{self._prefix}.{broker_id}.1"],
        ):
            ip("-netns", place, *words)

    def _link(self, number: int, address: str) -> None:
        """A cable whose one end is in the middle."""
        ours, theirs = self._ours(number), self._theirs(number)
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
        ip("link", "set", ours, "netns", self._name)
        ip("-netns", self._name, "addr", "add", address, "dev", ours)
        ip("-netns", self._name, "link", "set", ours, "up")

    def _ours(self, number: int) -> str:
        return f"{self._name}v{number}"

    def _theirs(self, number: int) -> str:
        return f"{self._name}w{number}"

    def _in_the_middle(self, *words: str) -> None:
        command = ["ip", "netns", "exec", self._name, *words]
        subprocess.run(command, check=True, capture_output=True, timeout=20)

    def remove(self) -> None:
        """Its end takes the cables with it, and their addresses and routes."""
        for words in (
            ["link", "del", f"{self._name}w0"],
            *(["netns", "del", f"{self._name}b{broker_id}"] for broker_id in self._ids),
            ["netns", "del", self._name],
        ):
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=20)


@contextmanager
def networks(brokers: int) -> Iterator[Network]:
    network = Network(brokers)
    try:
        try:
            network.make()
        except (OSError, subprocess.CalledProcessError) as error:
            detail = getattr(error, "stderr", b"") or b""
            missing(f"network namespaces cannot be made here (root is needed): {detail.decode().strip()}")
        yield network
    finally:
        network.remove()
