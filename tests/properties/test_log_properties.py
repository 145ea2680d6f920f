"""Any sequence of appends, rolls, retention, compaction, deletions, truncations, crashes and restarts against a list.

`machine` has the steps that every place has, and what must hold after each; here are those that only a simulated disk
has, where the power may go within any single change, writes and syncs fail, and room runs out. `make properties
EXAMPLES=n` tries more sequences than `make test`, and others each time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from moldau.records.compression import Codec
from moldau.sim.drive import DiskFaults
from properties.machine import CONFIGS, PRODUCERS, SHARES, LogAgainstList, settings_of
from properties.places import RealPlace, SimPlace

EXAMPLES = int(os.environ.get("EXAMPLES", "0"))
TROUBLES = st.sampled_from(["read", "write", "sync", "full"])
PATHS = st.sampled_from(["", ".log", "index", "checkpoint", ".snapshot", ".cleaned", ".swap", ".deleted"])


class LogOnSimulatedDisk(LogAgainstList):
    place: SimPlace

    @initialize(
        seed=st.integers(0, 2**32),
        config=CONFIGS,
        cold_rate=st.sampled_from([0.0, 0.1]),
        short_write_rate=st.sampled_from([0.0, 0.05]),
    )
    def start(self, seed: int, config: dict[str, str], cold_rate: float, short_write_rate: float) -> None:
        faults = DiskFaults(cold_rate=cold_rate, short_write_rate=short_write_rate)
        self.begin(SimPlace(settings_of(config), seed, faults))

    @rule(
        changes=st.integers(0, 30),
        share=SHARES,
        what=st.sampled_from(["truncate", "retain", "close", "roll"]),
    )
    def crash_in_a_change(self, changes: int, share: float, what: str) -> None:
        """The power goes in the middle of a write, a sync or a rename."""
        model = self.model
        offset = self.cut_at(share)
        works = {
            "truncate": lambda: self.log.truncate_to(offset, self.place.manager.write_checkpoints_of),
            "retain": self.place.manager.enforce_retention,
            "close": self.place.manager.close,
            "roll": self.roll_now,
        }
        lowest = model.durable
        if what == "truncate":
            lowest = min(lowest, max(model.start, model.end_at(offset)))
        elif what == "retain":
            start = self.start_after_retention()
            model.start = model.end if start is None else start
        self.place.drive.crash_after(changes)
        self.place.run(works[what]())
        self.place.crash()
        self.come_back(lowest=lowest)

    @rule(
        kind=st.sampled_from(["read", "write", "sync"]),
        path=st.sampled_from(["", ".log", "index", "checkpoint", ".snapshot"]),
        count=st.integers(1, 3),
        what=st.sampled_from(["append", "flush", "roll", "checkpoint", "retain"]),
        kill=st.booleans(),
    )
    def disk_fails(self, kind: str, path: str, count: int, what: str, kill: bool) -> None:
        """Who asked is told; a log whose disk cannot be trusted is offline, and a new start has what was synced."""
        self.place.drive.fail_next(kind, path_contains=path, count=count)  # type: ignore[arg-type]
        self.disturbed(what)
        self.place.pass_time(0)  # what goes on in the background meets it too
        self.place.drive.forgive()
        if self.log.failure is not None:
            is_cached = kill and kind != "sync"  # a failed sync leaves a page cache that lies
            (self.place.kill if is_cached else self.place.crash)()
            self.come_back(lowest=self.model.end if is_cached else None)

    @rule(room=st.integers(0, 600), what=st.sampled_from(["append", "flush", "roll", "checkpoint", "retain"]))
    def disk_is_full(self, room: int, what: str) -> None:
        """Nothing is lost or changed, and all goes on once there is room."""
        drive = self.place.drive
        drive.faults = replace(drive.faults, capacity_bytes=drive.platter.used_bytes + room)
        error = self.disturbed(what)
        drive.faults = replace(drive.faults, capacity_bytes=None)
        assert error is None or error.errno == errno.ENOSPC, error
        assert self.log.failure is None

    def disturbed(self, what: str) -> OSError | None:
        """Do something while the disk does not do its part."""
        model, manager = self.model, self.place.manager
        if what == "append":
            stored = self.next_batch([(b"a", b"disturbed")], Codec.NONE, 0, PRODUCERS[0])
            outcome = self.place.run(self.send(stored.data))
            if outcome.error is None:
                self.note(stored, outcome.value)
        elif what == "flush":
            outcome = self.place.run(self.log.flush())
            if outcome.error is None:
                model.durable = model.end
        elif what == "roll":
            outcome = self.place.run(self.roll_now())
        elif what == "checkpoint":
            outcome = self.place.run(manager.write_checkpoints())
            if outcome.error is None:
                model.start_durable = model.start
        else:
            wanted = self.start_after_retention()
            outcome = self.place.run(manager.enforce_retention())
            assert model.start <= self.log.log_start_offset <= (model.end if wanted is None else wanted)
            model.start = self.log.log_start_offset
        assert not outcome.crashed
        return outcome.error

    @contextmanager
    def trouble(self, kind: str, path: str, count: int) -> Iterator[None]:
        """A disk that fails so many times, or has room for little more."""
        drive = self.place.drive
        if kind == "full":
            drive.faults = replace(drive.faults, capacity_bytes=drive.platter.used_bytes + 100 * count)
        else:
            drive.fail_next(kind, path_contains=path, count=count)  # type: ignore[arg-type]
        yield
        drive.forgive()
        drive.faults = replace(drive.faults, capacity_bytes=None)

    @rule(kind=TROUBLES, path=PATHS, count=st.integers(1, 6), kill=st.booleans())
    def trouble_in_a_compaction(self, kind: str, path: str, count: int, kill: bool) -> None:
        """What is left is one or the other, segment by segment; and the next one comes to its end."""
        if not self.log.config.compact:
            return
        before, dirty_from = self.before_compaction()
        with self.trouble(kind, path, count):
            assert self.place.run(self.place.cleaner.clean(self.log)).error is None
        if self.log.failure is not None:
            assert kind != "full"
            (self.place.kill if kill and kind != "sync" else self.place.crash)()
            self.come_back()
        self.after_compaction(before, dirty_from)
        assert not self.leftovers(".cleaned", ".swap")
        self.compact()

    def leftovers(self, *suffixes: str) -> list[str]:
        names = self.place.runtime.disk.list(self.log.folder)
        return [name for name in names if name.endswith(suffixes)]

    @rule(kind=TROUBLES, path=PATHS, count=st.integers(1, 6), share=SHARES, kill=st.booleans())
    def trouble_in_a_cut(self, kind: str, path: str, count: int, share: float, kill: bool) -> None:
        """It is longer than asked for, at worst, and can be cut again."""
        model, offset = self.model, self.cut_at(share)
        lowest = min(model.end, max(model.start, model.end_at(offset)))
        cut = lambda: self.log.truncate_to(offset, self.place.manager.write_checkpoints_of)  # noqa: E731
        with self.trouble(kind, path, count):
            error = self.place.run(cut()).error
        if self.log.failure is not None:
            (self.place.kill if kill and kind != "sync" else self.place.crash)()
            self.come_back(lowest=min(lowest, model.durable))
            return
        if error is not None:
            assert lowest <= self.log.next_offset <= model.end
            self.run(cut())
        self.note_truncated(offset)

    @rule(changes=st.integers(0, 60))
    def crash_while_compacting(self, changes: int) -> None:
        if self.log.config.compact:
            before, dirty_from = self.before_compaction()
            self.place.drive.crash_after(changes)
            self.place.run(self.place.cleaner.clean(self.log))
            self.place.crash()
            self.come_back()
            self.after_compaction(before, dirty_from)

    @rule(changes=st.integers(0, 20))
    def crash_while_recovering(self, changes: int) -> None:
        self.place.crash()
        self.place.drive.crash_after(changes)
        self.place.open()
        self.place.crash()
        self.come_back()


class LogOnRealDisk(LogAgainstList):
    @initialize(seed=st.integers(0, 2**32), config=CONFIGS)
    def start(self, seed: int, config: dict[str, str]) -> None:
        self.begin(RealPlace(settings_of(config), seed))


def tried(usually: int) -> settings:
    """The same sequences in each `make test`; as many as `EXAMPLES` says, and others each time, where that is set."""
    return settings(
        max_examples=EXAMPLES or usually,
        stateful_step_count=80 if EXAMPLES else 40,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


TestOnSimulatedDisk = LogOnSimulatedDisk.TestCase
TestOnSimulatedDisk.settings = tried(120)
TestOnRealDisk = LogOnRealDisk.TestCase
TestOnRealDisk.settings = tried(40)
