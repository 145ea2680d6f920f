"""What of a log is on the disk: one sync under way per log, and everyone who comes meanwhile shares the next.

What is to be done is taken together on the loop's thread and done on another one, in the order in which it
must become durable: small files (leader epochs, snapshots), segments that were rolled, then the active
segment. Only then does the recovery point move and are the waiting callbacks called.

A sync that failed is never repeated: after it Linux may hold the pages as clean although they are not on
the disk. The log is failed from then on, and everyone who waits gets the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.checkpoints import write_epochs
from moldau.log.epochs import LeaderEpochs
from moldau.log.segments import Segments
from moldau.runtime.ports import Runtime, Timer

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


class Flusher:
    __slots__ = (
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
        """Everything below is on the disk, with its indexes."""
        self.error: OSError | None = None
        self.whole = False
        """Sync the active segment's indexes too: at the end."""
        self.has_policy = False
        self._queue: list[Callable[[], None]] = []
        """What must be durable before the active segment, in this order. The next flush takes it all."""
        self._sync_active = False
        self._waiting: list[Flushed] = []
        self._wanted = False
        self._running = False
        self._on_quiet: list[Callable[[], object]] = []
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
                work, durable_to = self._take_work()
                try:
                    await self._runtime.tasks.in_thread(work)
                except OSError as error:
                    self.stop(error)
                else:
                    self.recovery_point = max(self.recovery_point, durable_to)
                for callback in waiting:
                    callback(self.error)
        finally:
            self._running = False
            calls, self._on_quiet = self._on_quiet, []
            for call in calls:
                call()

    def when_quiet(self, call: Callable[[], object]) -> None:
        """Call when no thread works on the log's files: now, or after the flush that is under way."""
        if self._running:
            self._on_quiet.append(call)
        else:
            call()

    def _take_work(self) -> tuple[Callable[[], None], int]:
        """All that is to be done now, and up to which offset the log is durable when it is done."""
        log = self._log
        if log.epochs.changed:
            log.epochs.changed = False
            self.queue_file(names.LEADER_EPOCHS, write_epochs(log.epochs.entries))
        steps, self._queue = self._queue, []
        active = log.segments.active
        durable_to = active.base_offset
        if self._sync_active:
            self._sync_active = False
            self._unflushed = 0
            durable_to = log.next_offset
            if active.size:
                steps.append(active.sync if self.whole else active.log.sync)

        def work() -> None:
            for step in steps:
                step()

        return work, durable_to

    @property
    def is_idle(self) -> bool:
        """Whether nothing is appended, changed or queued that the disk does not have."""
        log = self._log
        return self.recovery_point == log.next_offset and not self._queue and not log.epochs.changed

    @property
    def is_writing(self) -> bool:
        """Whether something is queued or under way."""
        return self._running or bool(self._queue)

    def queue(self, step: Callable[[], None]) -> None:
        self._queue.append(step)

    def queue_folder_sync(self) -> None:
        """A file has come into being, or will with the next write."""
        disk = self._runtime.disk
        self._queue.append(lambda: disk.sync_folder(self._log.folder))

    def queue_file(self, name: str, content: bytes) -> None:
        """A small file. The folder's name is taken when its turn comes: a deleted log's is another one
        then."""
        disk = self._runtime.disk
        self._queue.append(lambda: disk.write_atomic(f"{self._log.folder}/{name}", content))

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
