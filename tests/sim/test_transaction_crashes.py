"""Transactions under a crash of the broker at every step: of a transaction all is seen, or nothing (promise 4).

A client runs a few transactions, in both versions of the protocol. The broker is killed before or after its n-th write
to the disk, or its power is cut in its n-th change of it, whatever that is (a write, a sync, a rename), for every n:
so also between any two steps of the two-phase commit. Then it starts again and the client goes on as a new producer. In
the end nothing is open, what was confirmed is there, and offsets are those of what is seen. With power cuts every log
is flushed before it answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.coordinators import Coordinators
from moldau.coordinator.shard import NOTHING, Decision
from moldau.coordinator.transaction.messages import Markers
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.sim.disk import SimFile
from moldau.sim.loop import HostCrashed
from moldau.sim.world import World

from .copier import FLUSHED, TRANSACTIONS, Copier, Stage, check

CRASHES = ("killed before a write", "killed after a write", "power cut")
WRITTEN_AT_LEAST = {
    "__transaction_state": 2
    + 3 * TRANSACTIONS,  # begun; then a partition added, the end decided, and carried out
    "__consumer_offsets": 2 * TRANSACTIONS,  # an offset and a marker
    "a-0": 2 * TRANSACTIONS,
    "b-0": 2 * TRANSACTIONS,
}
"""Writes to the logs without which a run would not go through all steps."""


class Saboteur:
    """Ends the broker at one of its changes to the disk, counted from `arm` on."""

    def __init__(self, stage: Stage, crash: str, number: int) -> None:
        self._stage = stage
        self._crash = crash
        self._number = number
        self._is_armed = False
        self.paths: list[str] = []
        """Of the writes since it was armed."""

    def arm(self) -> None:
        self._is_armed = True
        if self._crash == "power cut":
            self._stage.host.drive.crash_after(self._number - 1)

    def disarm(self) -> None:
        self._is_armed = False
        self._stage.host.drive.forgive()

    def pwrite(self, file: SimFile, data: Any, position: int) -> int:
        if not self._is_armed:
            return PWRITE(file, data, position)
        self.paths.append(file.path)
        is_due = self._crash != "power cut" and len(self.paths) == self._number
        if is_due and self._crash == "killed before a write":
            self._end()
        written = PWRITE(file, data, position)
        if is_due:
            self._end()
        return written

    def _end(self) -> None:
        self._stage.host.kill()
        raise HostCrashed("killed at a write")


PWRITE = SimFile.pwrite


def run_with_crash(
    monkeypatch: pytest.MonkeyPatch, number: int, *, own_epochs: bool, crash: str
) -> list[str] | None:
    """One run with a crash at one change. Without that change: the paths written to, and no transaction may fail."""
    with World(f"transactions {own_epochs} {crash}") as world:
        stage = Stage(world, FLUSHED if crash == "power cut" else {})
        copier = Copier(stage, own_epochs)
        saboteur = Saboteur(stage, crash, number)

        async def main() -> None:
            world.loop.create_task(stage.keep_up())
            await copier.prepare()
            saboteur.arm()
            await copier.run()
            await world.sleep(0.5)  # the last markers are written after the answer
            saboteur.disarm()
            if stage.starts == 1:
                assert copier.committed | copier.aborted == set(range(TRANSACTIONS)), "a transaction failed"
            await copier.init()  # ends what is open
            await world.sleep(0.5)
            await check(copier, copier.committed, copier.aborted, f"{crash} {number}")

        def crashing(file: SimFile, data: Any, position: int) -> int:
            return saboteur.pwrite(file, data, position)

        with monkeypatch.context() as patch:
            patch.setattr(SimFile, "pwrite", crashing)
            world.run(main())
        return saboteur.paths if stage.starts == 1 else None


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("own_epochs", [False, True], ids=["version 1", "version 2"])
def test_a_crash_at_any_step_leaves_all_of_a_transaction_or_nothing(
    monkeypatch: pytest.MonkeyPatch, own_epochs: bool, crash: str
) -> None:
    number = 1
    while (paths := run_with_crash(monkeypatch, number, own_epochs=own_epochs, crash=crash)) is None:
        number += 1
    for log, least in WRITTEN_AT_LEAST.items():
        written = sum(f"/{log}" in path and path.endswith(".log") for path in paths)
        assert written >= least, f"only {written} writes to {log}: {paths}"
    assert number > len(paths) or crash == "power cut"


# ---- planted bugs ----------------------------------------------------------------------------------------------


def forget_what_was_decided(shard: TransactionShard, moment: Any) -> Decision:
    return NOTHING


async def write_all_markers_but_one(self: Any, markers: Markers) -> dict[Any, ErrorCode]:
    outcomes = await WRITE_MARKERS(self, markers._replace(partitions=markers.partitions[1:]))
    return outcomes | dict.fromkeys(markers.partitions, ErrorCode.none)


async def write_what_is_not_decided(self: Any, markers: Markers) -> dict[Any, ErrorCode]:
    return await WRITE_MARKERS(self, markers._replace(is_commit=True))


WRITE_MARKERS = Coordinators._write_markers
PLANTS = {
    "decided ends are forgotten": (TransactionShard, "on_loaded", forget_what_was_decided),
    "a marker is left out": (Coordinators, "_write_markers", write_all_markers_but_one),
    "all is committed": (Coordinators, "_write_markers", write_what_is_not_decided),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_bugs_are_found(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    monkeypatch.setattr(*PLANTS[plant])
    with pytest.raises(AssertionError):
        for number in range(1, 200):
            run_with_crash(monkeypatch, number, own_epochs=True, crash="killed before a write")
