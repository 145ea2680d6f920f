"""What an attack is, and the common kinds: one request, many in a row, many that nobody reads.

An attack is prepared first (content is made, bytes are put together) and then carried out while the pinger looks on;
what `prepare` returns is the second part. It gets the time at which it has to be over.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from .client import Client, Volleyed, connect, decoded, first_error, volley
from .requests import Values, frame
from .target import Target

HOLD_S = 3.0
"""How long unread answers pile up."""


@dataclass(frozen=True, slots=True)
class Outcome:
    sent_bytes: int
    answer: str
    is_late: bool = False
    """It was cut off before it was over."""
    complaint: str = ""
    """What should not be so, where that is more than time and memory: a lie that was believed, an honest client that
    was turned away."""


CarryOut = Callable[[float], Outcome]
Prepare = Callable[[Target], CarryOut]


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    prepare: Prepare
    is_quick: bool = False
    """Part of `--part quick`."""
    spoils: bool = False
    """It leaves things behind on the broker, which is replaced afterwards."""
    on_kafka: bool = True
    settings: Mapping[str, object] = field(default_factory=dict)
    open_files_max: int | None = None

    @property
    def wants_its_own(self) -> bool:
        """A broker that is started otherwise than for the others."""
        return bool(self.settings) or self.open_files_max is not None


def size_text(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def told(volleyed: Volleyed, api: str | None, version: int) -> Outcome:
    """An outcome in words."""
    words = []
    if volleyed.answers or volleyed.answered_bytes:
        count = f"{volleyed.answers:,} answers, " if volleyed.answers != 1 else ""
        words.append(f"{count}{size_text(volleyed.answered_bytes)}{_error(volleyed, api, version)}")
    if volleyed.closed:
        words.append("closed" if volleyed.lanes == 1 else f"{volleyed.closed} of {volleyed.lanes} closed")
    if volleyed.is_late:
        words.append("cut off")
    return Outcome(volleyed.sent_bytes, ", ".join(words) or "nothing", volleyed.is_late)


def _error(volleyed: Volleyed, api: str | None, version: int) -> str:
    answer = volleyed.first_answer()
    if api is None or answer is None:
        return ""
    try:
        error = first_error(decoded(api, version, answer))
    except Exception:  # whatever is in there, it is not what was asked for
        return " that cannot be read"
    return f" {error}" if error else ""


def request(
    api: str, version: int, make: Callable[[Target], bytes], *, answers: int = 1, must_fail: bool = False
) -> Prepare:
    """One connection sends these bytes, a frame or several, and reads the answers.

    With `must_fail` it is a complaint if the first answer holds no error.
    """

    def prepare(target: Target) -> CarryOut:
        data = make(target)

        def carry_out(deadline_s: float) -> Outcome:
            with connect(target.address) as connection:
                done = volley([connection], data, answers=answers, deadline_s=deadline_s)
            outcome = told(done, api, version)
            if must_fail and done.answers and not _error(done, api, version):
                return replace(outcome, complaint="it was taken")
            return outcome

        return carry_out

    return prepare


def pipelined(api: str, version: int, make: Callable[[Target], bytes], count: int) -> Prepare:
    """The same request many times in one write."""
    return request(api, version, lambda target: make(target) * count, answers=count)


def unread(make: Callable[[Target], bytes], connections: int) -> Prepare:
    """Each of several connections sends these bytes and reads nothing for a while."""

    def prepare(target: Target) -> CarryOut:
        data = make(target)

        def carry_out(deadline_s: float) -> Outcome:
            until = min(deadline_s, time.monotonic() + HOLD_S)
            with several(target.address, connections) as opened:
                done = volley(opened, data, answers=0, deadline_s=until, reads=False)
                time.sleep(max(0.0, until - time.monotonic()))
            return Outcome(done.sent_bytes, f"unread for {HOLD_S:g} s, {done.closed} closed")

        return carry_out

    return prepare


@contextmanager
def several(address: str, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(address)) for _ in range(count)]


def in_turn(steps: Callable[[Target], Iterator[tuple[str, int, bytes]]]) -> Prepare:
    """Requests one after the other, each answered before the next one is sent."""

    def prepare(target: Target) -> CarryOut:
        wanted = list(steps(target))

        def carry_out(deadline_s: float) -> Outcome:
            sent = answered = 0
            error = None
            with Client(target.address) as client:
                for api, version, data in wanted:
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0:
                        return Outcome(sent, f"{answered} answers, cut off", is_late=True)
                    client.timeout(left_s)
                    try:
                        client.send(data)
                        sent += len(data)
                        error = error or first_error(decoded(api, version, client.receive()))
                        answered += 1
                    except TimeoutError:
                        return Outcome(sent, f"{answered} answers, cut off", is_late=True)
                    except OSError:
                        return Outcome(sent, f"{answered} answers, closed")
            return Outcome(sent, f"{answered} answers{f', {error}' if error else ''}")

        return carry_out

    return prepare


def one(api: str, version: int, values: Callable[[Target], Values]) -> Prepare:
    """One request, by its fields."""
    return request(api, version, lambda target: frame(api, version, values(target)))
