"""What of a log is on the disk: one sync under way per log, and everyone who comes meanwhile shares the next.

What is to be done is taken together on the loop's thread and done on another one, in the order in which it
must become durable: small files (leader epochs, snapshots), segments that were rolled, then the active
segment. Only then does the recovery point move and are the waiting callbacks called.

A sync that failed is never repeated: after it Linux may hold the pages as clean although they are not on
the disk. The log is failed from then on, and everyone who waits gets the error.

A small file, or an entry of an index, for which there is no room is kept, and written with a later flush. The records
do not wait for it: it can be made anew from them, from the recovery point on, which stays where it is until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.checkpoints import write_epochs
from moldau.log.disk_errors import NotWrittenYet, is_no_room, is_passing
from moldau.log.epochs import LeaderEpochs
from moldau.log.segments import Segments
from moldau.runtime.ports import Disk, Runtime, Timer

FLUSH_NEVER = 2**62
"""Settings from here on mean: leave it to the operating system (Kafka's default is 2^63 - 1)."""

Flushed = Callable[[OSError | None], object]
"""Called once, on the loop, when everything appended before the request is on the disk, or never will be."""


class FlushedLog(Protocol):
    """What must be known of the log."""

    folder: str
    next_offset: int
    segments: Segments
    epochs: LeaderEpochs

    def fail(self, error: OSError) -> None: ...
    def note_error(self, error: OSError) -> None: ...


class _Work:
    """What one flush does in its thread. What it has done is taken off its lists."""

    __slots__ = ("_disk", "_log", "durable_to", "files", "no_room", "put_off", "steps")

    def __init__(
        self,
        disk: Disk,
        log: FlushedLog,
        files: dict[str, bytes],
        steps: list[Callable[[], None]],
        durable_to: int,
    ) -> None:
        self._disk = disk
        self._log = log
        self.files = files
        self.steps = steps
        self.durable_to = durable_to
        """The offset up to which the log is durable when all is done."""
        self.no_room: OSError | None = None
        """Why some of the files are not written."""
        self.put_off: list[Callable[[], None]] = []
        """Steps for which there was no room either."""

    def do(self) -> None:
        self._write_files()
        while self.steps:
            try:
                self.steps[0]()
            except NotWrittenYet as error:
                self.no_room = error
                self.put_off.append(self.steps[0])
            del self.steps[0]

    def _write_files(self) -> None:
        for name in list(self.files):
            try:
                # The folder's name is taken only now: that of a deleted log is another one than before.
                self._disk.write_atomic(f"{self._log.folder}/{name}", self.files[name])
            except OSError as error:
                if not is_no_room(error):
                    raise
                self.no_room = error
                return
            del self.files[name]


class Flusher:
    __slots__ = (
        "_between",
        "_ceiling",
        "_durable_to",
        "_files",
        "_log",
        "_messages",
        "_name",
        "_on_quiet",
        "_queue",
        "_running",
        "_runtime",
        "_sync_active",
        "_timer",
        "_unflushed",
        "_wait_ms",
        "_waiting",
        "_wanted",
        "error",
        "has_policy",
        "recovery_point",
        "whole",
    )

    def __init__(self, log: FlushedLog, runtime: Runtime, name: str, recovery_point: int) -> None:
        self._log = log
        self._runtime = runtime
        self._name = name
        self.recovery_point = recovery_point
        """Everything below is on the disk, with its indexes and all small files."""
        self._durable_to = recovery_point
        self._ceiling = FLUSH_NEVER
        """The recovery point does not pass it: the log is about to be cut off there."""
        self.error: OSError | None = None
        self.whole = False
        """Sync the active segment's indexes too: at the end."""
        self.has_policy = False
        self._files: dict[str, bytes] = {}
        """Small files that are to be written, by name."""
        self._queue: list[Callable[[], None]] = []
        """What must be durable before the active segment, in this order. The next flush takes it all."""
        self._sync_active = False
        self._waiting: list[Flushed] = []
        self._wanted = False
        self._running = False
        self._on_quiet: list[Callable[[], object]] = []
        self._between: list[Callable[[], object]] = []
        self._timer: Timer | None = None
        self._unflushed = 0
        self._messages = self._wait_ms = FLUSH_NEVER

    def configure(self, config: TopicConfig) -> None:
        self._messages, self._wait_ms = config.flush_messages, config.flush_ms
        self.has_policy = min(self._messages, self._wait_ms) < FLUSH_NEVER

    def note_appended(self, count: int) -> bool:
        """Whether `flush.messages` is reached, so that the answer must wait. `flush.ms` is seen to here."""
        self._unflushed += count
        if self._timer is None and self._wait_ms < FLUSH_NEVER:
            self._timer = self._runtime.tasks.call_later(self._wait_ms / 1000, self._flush_by_time)
        return self._unflushed >= self._messages

    def must_wait(self, offset: int) -> bool:
        """Whether an answer about an offset has to wait for a sync: a retry may come before the first
        answer."""
        return self._messages < FLUSH_NEVER and offset >= self.recovery_point

    def _flush_by_time(self) -> None:
        self._timer = None
        self.flush()

    def flush(self, callback: Flushed | None = None) -> None:
        """Bring everything appended so far to the disk, then call back."""
        self._sync_active = True
        self.write(callback)

    def write(self, callback: Flushed | None = None) -> None:
        """Bring what is queued to the disk, then call back. The active segment is left to the system."""
        if self.error is not None:
            if callback is not None:
                self._runtime.tasks.call_soon(callback, self.error)
            return
        if callback is not None:
            self._waiting.append(callback)
        self._wanted = True
        if not self._running:
            self._running = True
            self._runtime.tasks.spawn(self._run(), name=f"flush {self._name}")

    async def _run(self) -> None:
        try:
            while self._wanted and self.error is None:
                self._wanted = False
                waiting, self._waiting = self._waiting, []
                work = self._take_work()
                try:
                    await self._runtime.tasks.in_thread(work.do)
                    error = self._finish(work)
                except OSError as failure:
                    error = self._interrupt(work, failure)
                for callback in waiting:
                    callback(error)
                self._call_between()
        finally:
            self._running = False
            self._call_between()
            calls, self._on_quiet = self._on_quiet, []
            for call in calls:
                call()

    def _finish(self, work: _Work) -> OSError | None:
        self._keep_unwritten(work)
        self._durable_to = max(self._durable_to, work.durable_to)
        if work.no_room is not None:
            self._log.note_error(work.no_room)
        else:
            self.recovery_point = min(self._durable_to, self._ceiling)
        return self.error

    def _interrupt(self, work: _Work, error: OSError) -> OSError:
        """What was not done is done with the next flush, if that can help."""
        if is_passing(error):
            self._keep_unwritten(work)
            self._queue[:0] = work.steps
            self._log.note_error(error)
        else:
            self.stop(error)
        return error

    def _keep_unwritten(self, work: _Work) -> None:
        self._files = {**work.files, **self._files}
        self._queue[:0] = work.put_off

    def hold(self, offset: int) -> None:
        """The log will be cut off at an offset: what lies behind counts as not durable from now on."""
        self._ceiling = offset
        self.recovery_point = min(self.recovery_point, offset)

    def release(self, next_offset: int) -> None:
        """The log ends here, cut off or not."""
        self._ceiling = FLUSH_NEVER
        self._durable_to = min(self._durable_to, next_offset)

    def when_quiet(self, call: Callable[[], object]) -> None:
        """Call when no thread works on the log's files: now, or after the flush that is under way."""
        if self._running:
            self._on_quiet.append(call)
        else:
            call()

    def between_rounds(self, call: Callable[[], object]) -> None:
        """As `when_quiet`, but also where the next flush is wanted already: it has not begun."""
        if self._running:
            self._between.append(call)
        else:
            call()

    def _call_between(self) -> None:
        calls, self._between = self._between, []
        for call in calls:
            call()

    def go_on_with(self, copy: Flusher) -> None:
        """The log goes on in the folder of its copy, between two rounds of either: what is on the disk there is what
        counts. Who waits for a flush waits for one there."""
        self._queue = copy._queue
        self._files = {name: data for name, data in copy._files.items() if name != names.LEADER_EPOCHS}
        self._log.epochs.write_anew()
        self.recovery_point, self._durable_to = copy.recovery_point, copy._durable_to

    def _take_work(self) -> _Work:
        """All that is to be done now."""
        log = self._log
        if log.epochs.changed:
            log.epochs.note_written()
            self.queue_file(names.LEADER_EPOCHS, write_epochs(log.epochs.entries))
        active = log.segments.active
        work = _Work(self._runtime.disk, log, self._files, self._queue, active.base_offset)
        self._files, self._queue = {}, []
        if self._sync_active:
            self._sync_active = False
            self._unflushed = 0
            work.durable_to = log.next_offset
            if active.size:
                work.steps.append(active.sync if self.whole else active.log.sync)
        return work

    @property
    def is_idle(self) -> bool:
        """Whether nothing is appended, changed or queued that the disk does not have."""
        log = self._log
        is_written = not self._queue and not self._files and not log.epochs.changed
        return is_written and self.recovery_point == log.next_offset

    @property
    def unwritten(self) -> list[str]:
        """The small files that are not on the disk yet."""
        return list(self._files)

    @property
    def is_running(self) -> bool:
        """Whether a thread works on the log's files, or is about to."""
        return self._running

    @property
    def is_writing(self) -> bool:
        """Whether something is queued or under way."""
        return self._running or bool(self._queue) or bool(self._files)

    def queue(self, step: Callable[[], None]) -> None:
        self._queue.append(step)

    def queue_folder_sync(self) -> None:
        """A file has come into being, or will with the next write."""
        if self._sync_folder not in self._queue:
            self._queue.append(self._sync_folder)

    def _sync_folder(self) -> None:
        self._runtime.disk.sync_folder(self._log.folder)

    def queue_file(self, name: str, content: bytes) -> None:
        """A small file, in the place of what was to be written under its name before."""
        self._files[name] = content

    def drop_file(self, name: str) -> None:
        """A small file is no longer wanted, if it was not written yet."""
        self._files.pop(name, None)

    def forget(self) -> None:
        """What was to be written: nobody will."""
        self._files, self._queue = {}, []

    def stop(self, error: OSError) -> None:
        """No sync of this log counts from now on."""
        if self.error is None:
            self.error = error
            if self._timer is not None:
                self._timer.cancel()
            waiting, self._waiting = self._waiting, []
            self._log.fail(error)
            for callback in waiting:
                callback(error)
