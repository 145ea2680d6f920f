"""One attack after the other on a broker, which is replaced when it is dead, stuck, spoilt or bloated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .attack import Attack, Outcome
from .pinger import Pinger, memory_of_all
from .report import Row
from .target import ContentFailed, Target

MB = 1_000_000
IDLE_S = 5.0
SETTLE_S = 0.3
"""The pinger looks on for so long after an attack: ends of connections cost something, too."""
STUCK_S = 1.0
"""A broker that does not answer so long after an attack was cut off is killed."""
MEMORY_BACK_S = 4.0
"""How long memory may take to come back; that is waited for only where an attack took much."""
READY_S = 10.0
CALM_MS = 50
CALM_S = 0.2
CALM_TRIES = 15
"""After an attack that made others wait, a broker is used again only when nobody waits any more."""
MUCH_MB = 50
"""With so much left behind, the next attack gets a fresh broker: its figures are its own, and nobody waits each time
for memory that does not come back."""


@dataclass(slots=True)
class Runner:
    """Runs attacks; `tell` gets each row at once."""

    on_kafka: bool
    seconds: float
    tell: Callable[[Row], None]
    _target: Target | None = None
    _pinger: Pinger | None = None
    _last_worst_ms: float = 0.0

    def run(self, attacks: Sequence[Attack]) -> None:
        try:
            for attack in [Attack("idle", _idle), *attacks]:
                if attack.on_kafka or not self.on_kafka:
                    self.tell(self._run(attack))
        finally:
            self._end()

    def _run(self, attack: Attack) -> Row:
        if attack.wants_its_own:
            self._end()
        if not self._is_calm():
            self._end()
        target, pinger = self._broker(attack)
        started = time.monotonic()
        try:
            carry_out = attack.prepare(target)
        except (OSError, ContentFailed) as problem:
            self._end()
            return Row(attack.name, 0, f"not prepared: {problem}", 0, 0, 0, 0, "no: not prepared")
        row = self._measure(attack, target, pinger, carry_out, time.monotonic() - started)
        if row.serves != "yes" or attack.spoils or attack.wants_its_own or row.after_mb > MUCH_MB:
            self._end()
        return row

    def _is_calm(self) -> bool:
        """Whether the last attack is really over: what it left to do would be put down to the next one."""
        if self._pinger is None or self._last_worst_ms < CALM_MS:
            return True
        for _ in range(CALM_TRIES):
            self._pinger.begin()
            time.sleep(CALM_S)
            seen = self._pinger.end(CALM_S)
            if not seen.is_waiting and seen.worst_ms < CALM_MS:
                return True
        return False

    def _measure(
        self,
        attack: Attack,
        target: Target,
        pinger: Pinger,
        carry_out: Callable[[float], Outcome],
        prepared_s: float,
    ) -> Row:
        pinger.begin()
        started = time.monotonic()
        try:
            outcome = carry_out(started + self.seconds)
        except OSError as problem:
            outcome = Outcome(0, f"{type(problem).__name__}: {problem}")
        time.sleep(SETTLE_S)
        left_s = max(STUCK_S, started + self.seconds - time.monotonic()) if target.is_alive() else 0.1
        seen = pinger.end(left_s)
        self._last_worst_ms = seen.worst_ms
        peak_mb = (seen.peak_bytes - target.idle_bytes) / MB
        serves = "no: stuck" if seen.is_waiting and target.is_alive() else target.serves()
        after_mb = (
            _memory_after(target, peak_mb) if serves == "yes" else (seen.now_bytes - target.idle_bytes) / MB
        )
        return Row(
            name=attack.name,
            sent_bytes=outcome.sent_bytes,
            answer=outcome.answer,
            worst_ms=seen.worst_ms,
            p99_ms=seen.p99_ms,
            peak_mb=peak_mb,
            after_mb=after_mb,
            serves=serves,
            starved_ms=seen.starved_ms,
            complaint=outcome.complaint,
            is_late=seen.is_waiting,
            seconds=round(time.monotonic() - started + prepared_s, 1),
        )

    def _broker(self, attack: Attack) -> tuple[Target, Pinger]:
        if self._target is None or self._pinger is None:
            self._target = Target(
                on_kafka=self.on_kafka, settings=attack.settings, open_files_max=attack.open_files_max
            ).start()
            self._pinger = Pinger(self._target.address, self._target.pid)
            self._pinger.end(READY_S)  # it is connected once it has asked something
        return self._target, self._pinger

    def _end(self) -> None:
        if self._pinger is not None:
            self._pinger.close()
            self._pinger = None
        if self._target is not None:
            self._target.stop()
            self._target = None


def _memory_after(target: Target, peak_mb: float) -> float:
    """What is left, at once or when it has come back."""
    until = time.monotonic() + (MEMORY_BACK_S if peak_mb > MUCH_MB else 0)
    while True:
        left_mb = (memory_of_all(target.pid) - target.idle_bytes) / MB
        if left_mb < MUCH_MB or time.monotonic() >= until:
            return left_mb
        time.sleep(0.1)


def _idle(_: Target) -> Callable[[float], Outcome]:
    def carry_out(_: float) -> Outcome:
        time.sleep(IDLE_S)
        return Outcome(0, "nothing was asked")

    return carry_out


def names_of(attacks: Sequence[Attack]) -> Iterator[str]:
    for attack in attacks:
        yield f"{attack.name}{'' if attack.is_quick else '  (not quick)'}"
