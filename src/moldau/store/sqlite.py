"""The cluster store in one SQLite file: for the brokers of one machine, with nothing else to install or run.

All work on the file is done by one thread of the store's own, one operation after the other (`sqlite_file`), so that
the loop never waits for the disk and a slow log never holds up a lease. Beside the file is a folder of named pipes:

- a session has a lifeline there. The kernel closes it the moment the process dies, and whoever watches something
  here, or has a session, sees that on its loop at once and ends the session. A process that is stopped or hangs
  keeps its lifeline and loses its lease, which it renews by the machine's boot clock. An id is used once, so an end
  that was seen is final.
- a watched path has a bell, which every process rings after a commit that touches it. What a process could not ring
  for, since it died first, is found by comparing fingerprints every few seconds, and when a process has died.

A process that is stopped in the middle of a transaction holds SQLite's lock until it goes on: writes of the others
are `Unavailable` then.
"""

from __future__ import annotations

import os.path
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from moldau.runtime.ports import Tasks, Timer
from moldau.runtime.real.machine import (
    Bell,
    Lifeline,
    Listener,
    OwnThread,
    boot_s,
    make_pipe_folder,
    make_private_file,
    remove_pipe,
    ring,
    sweep,
)
from moldau.store.engine import Engine, PathWatch
from moldau.store.port import (
    SESSION_TIMEOUT_S,
    Check,
    Entry,
    Operation,
    SessionEnded,
    Unavailable,
    Unknown,
    parent_of,
)
from moldau.store.sqlite_file import SessionRow, SqliteFile

T = TypeVar("T")

FOLDER_SUFFIX = "-sessions"
SESSIONS = "sessions"
"""The label of the bell that tells of new sessions."""
COMPARE_S = 3.0
COMPARE_WITHOUT_BELLS_S = 0.05
RENEWALS = 3
"""How often a lease is renewed in the time in which it would lapse."""
RETRY_S = 0.1
OPEN_ATTEMPTS = 50
"""Processes that make the file at the same moment stand in each other's way for some milliseconds."""
LEASE_SLACK_S = 0.005


class SqliteStore(Engine):
    def __init__(
        self, tasks: Tasks, path: str, file: SqliteFile, thread: OwnThread, session_timeout_s: float
    ) -> None:
        super().__init__(tasks)
        self._timers = tasks
        self._folder = path + FOLDER_SUFFIX
        self._file = file
        self._thread = thread
        self._session_timeout_s = session_timeout_s
        self.compare_s = COMPARE_S
        self._is_closed = False
        self._lease_s = 0.0
        self._lifeline: Lifeline | None = None
        self._renewal: Timer | None = None
        self._bells: dict[str, Bell | None] = {}
        self._comparison: Timer | None = None
        self._seen_version = -1
        self._is_observing = False
        self._listeners: dict[int, Listener] = {}
        self._next_lapse: Timer | None = None
        self._is_looking = False
        self._look_again = False

    @classmethod
    async def open(
        cls, tasks: Tasks, path: str, *, session_timeout_s: float = SESSION_TIMEOUT_S, syncs: bool = True
    ) -> SqliteStore:
        """OSError where the file cannot be opened or is not a store; TooNew where its format is a later one.
        `syncs`: not where it is thrown away.
        """
        thread = OwnThread("moldau-store")
        try:
            for attempt in range(OPEN_ATTEMPTS):
                try:
                    await thread.run(lambda: make_private_file(path))
                    file = await thread.run(lambda: SqliteFile(path, boot_s, syncs=syncs))
                    break
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error) or attempt == OPEN_ATTEMPTS - 1:
                        raise
                await tasks.sleep(RETRY_S)
            store = cls(tasks, path, file, thread, session_timeout_s)
            await store._end_dead_sessions()
            sweep(store._folder)
            return store
        except (sqlite3.Error, Unavailable) as error:
            thread.close()
            raise Unavailable(f"cannot open the cluster store {path}: {error}") from error
        except BaseException:
            thread.close()
            raise

    # Entries

    async def get(self, path: str) -> Entry | None:
        return await self._run(lambda: self._file.get(path))

    async def children(self, path: str) -> list[Entry]:
        return await self._run(lambda: self._file.children(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        session_id = self.session_id

        def change() -> None:
            self._file.multi(operations, _number(session_id))
            self._ring(operation.path for operation in operations if not isinstance(operation, Check))

        await self._in_session(session_id, change)

    async def create_candidate(self, path: str, value: bytes) -> str:
        session_id = self.session_id

        def change() -> str:
            number = _number(session_id)
            if number is None:
                raise SessionEnded("there is no session to stand with")
            created = self._file.create_candidate(path, value, number)
            self._ring([created])
            return created

        return await self._in_session(session_id, change)

    # The session

    async def begin_session(self, on_end: Callable[[], object]) -> str:
        if self.session_id is not None:
            raise RuntimeError("there is a session already")
        await self._end_dead_sessions()
        number = await self._run(self._file.next_session)
        make_pipe_folder(self._folder)
        lifeline = Lifeline.make(self._pipe(number))

        def begin() -> float:
            lease_s = self._file.begin_session(number, self._session_timeout_s, lifeline is not None)
            ring(self._folder, {SESSIONS})
            return lease_s

        try:
            self._lease_s = await self._run(begin)
        except BaseException:
            if lifeline is not None:
                lifeline.close()
            remove_pipe(self._pipe(number))
            raise
        self._lifeline = lifeline
        self.session_begun(str(number), on_end)
        self._renew_later(self._session_timeout_s / RENEWALS)
        self._observe()
        return str(number)

    async def end_session(self) -> None:
        session_id = self.session_id
        number = _number(session_id)
        if number is None:
            return
        try:
            await self._run(lambda: self._remove_session(number))
        finally:
            self.session_over(session_id, tell=False)

    def session_over(self, session_id: str | None, *, tell: bool = True) -> None:
        if session_id is not None and session_id == self.session_id:
            if self._renewal is not None:
                self._renewal.cancel()
            if self._lifeline is not None:
                self._lifeline.close()
                self._lifeline = None
        super().session_over(session_id, tell=tell)

    def _renew_later(self, delay_s: float) -> None:
        self._renewal = self._timers.call_later(delay_s, self._renew, self.session_id)

    def _renew(self, session_id: str | None) -> None:
        if session_id == self.session_id:
            self.tasks.spawn(self._renewed(session_id), name="session lease")

    async def _renewed(self, session_id: str | None) -> None:
        number = _number(session_id)
        assert number is not None
        delay_s = self._session_timeout_s / RENEWALS
        try:
            lease_s = await self._in_session(session_id, lambda: self._file.renew(number))
            if session_id == self.session_id:
                self._lease_s = lease_s
        except SessionEnded:
            return
        except (Unavailable, Unknown):
            delay_s = RETRY_S
            if boot_s() > self._lease_s:
                self.session_over(session_id)
        if session_id == self.session_id:
            self._renew_later(delay_s)

    # The sessions of others

    def _observe(self) -> None:
        """From now on, see to it that sessions of dead processes end."""
        if not self._is_observing and not self._is_closed:
            self._is_observing = True
            self._hang_bell(SESSIONS, self._look_at_sessions)
            self._compare_later()
            self._look_at_sessions()

    def _look_at_sessions(self) -> None:
        self._look_again = True
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            self.tasks.spawn(self._follow_sessions(), name="sessions of the cluster store")

    async def _follow_sessions(self) -> None:
        try:
            while self._look_again and not self._is_closed:
                self._look_again = False
                await self._end_dead_sessions()
        except (Unavailable, Unknown):
            if not self._is_closed:
                self._timers.call_later(RETRY_S, self._look_at_sessions)
        finally:
            self._is_looking = False

    async def _end_dead_sessions(self) -> None:
        """End the sessions whose process is gone, or whose lease has lapsed; listen to the others."""
        rows = [row for row in await self._run(self._file.sessions) if str(row.id) != self.session_id]
        now_s = boot_s()
        lapsed = [row.id for row in rows if row.has_lapsed(now_s)]
        dead = [row.id for row in rows if row.id not in lapsed and self._is_dead(row)]
        self._keep_listening({row.id for row in rows})
        if rows and self._is_observing:
            if self._next_lapse is not None:
                self._next_lapse.cancel()
            delay_s = min(row.lease_s for row in rows) - now_s + LEASE_SLACK_S
            self._next_lapse = self._timers.call_later(max(LEASE_SLACK_S, delay_s), self._look_at_sessions)
        if lapsed or dead:
            await self._run(lambda: self._remove_sessions(lapsed, dead))

    def _is_dead(self, row: SessionRow) -> bool:
        if not row.has_lifeline or row.id in self._listeners:
            return False
        listener = Listener.open(self._pipe(row.id), lambda: self._lifeline_ended(row.id))
        if listener is None:
            return True
        self._listeners[row.id] = listener
        return False

    def _lifeline_ended(self, number: int) -> None:
        del self._listeners[number]
        self._look_at_sessions()
        self.watches.touched_all()  # it may have died after a commit, before it rang

    def _keep_listening(self, numbers: set[int]) -> None:
        for number in [
            number for number in self._listeners if number not in numbers or not self._is_observing
        ]:
            self._listeners.pop(number).close()

    def _remove_sessions(self, lapsed: Sequence[int], dead: Sequence[int]) -> None:
        """On the store's thread."""
        for number in lapsed:
            self._remove_session(number, only_if_lapsed=True)
        for number in dead:
            self._remove_session(number)

    def _remove_session(self, number: int, *, only_if_lapsed: bool = False) -> None:
        """On the store's thread."""
        paths = self._file.end_session(number, only_if_lapsed=only_if_lapsed)
        if paths is not None:
            remove_pipe(self._pipe(number))
            self._ring(paths)

    def _pipe(self, number: int) -> str:
        return os.path.join(self._folder, str(number))

    # Watches

    def watch(self, path: str, callback: Callable[[], object]) -> PathWatch:
        watch = super().watch(path, callback)
        self._observe()
        if path not in self._bells:
            self._hang_bell(path, lambda: self.watches.touched_at(path))
        return watch

    def unwatched(self, path: str) -> None:
        bell = self._bells.pop(path, None)
        if bell is not None:
            bell.close()

    def _hang_bell(self, path: str, on_ring: Callable[[], object]) -> None:
        make_pipe_folder(self._folder)
        label = path if path == SESSIONS else _label(path)
        self._bells[path] = Bell.make(self._folder, label, on_ring)

    def _ring(self, paths: Iterable[str]) -> None:
        """On the store's thread, after the commit."""
        ring(self._folder, {_label(place) for path in paths for place in (path, parent_of(path))})

    def _compare_later(self) -> None:
        has_bells = self._bells.get(SESSIONS) is not None
        delay_s = self.compare_s if has_bells else COMPARE_WITHOUT_BELLS_S
        self._comparison = self._timers.call_later(delay_s, self._compare)

    def _compare(self) -> None:
        if not self._is_closed:
            self.tasks.spawn(self._compared(), name="watches of the cluster store")

    async def _compared(self) -> None:
        """Find what nobody has rung for."""
        watches = list(self.watches)
        fresh = any(watch.fingerprint is None for watch in watches)

        def compare() -> dict[str, tuple[object, ...]]:
            version = self._file.data_version()
            if version == self._seen_version and not fresh:
                return {}
            self._seen_version = version
            return self._file.fingerprints(dict.fromkeys(watch.path for watch in watches))

        try:
            found = await self._run(compare)
        except Unavailable:
            found = {}
        for watch in watches:
            fingerprint = found.get(watch.path, watch.fingerprint)
            if fingerprint != watch.fingerprint:
                watch.fingerprint = fingerprint
                self.watches.call_later(watch)
        if found and self._bells.get(SESSIONS) is None:
            self._look_at_sessions()
        if not self._is_closed:
            self._compare_later()

    # The end

    async def close(self) -> None:
        if self._is_closed:
            return
        try:
            await self.end_session()
        except (Unavailable, Unknown):
            pass  # its lifeline is closed, and others see that
        self._let_go()
        try:
            await self._thread.run(self._file.close)
        finally:
            self._thread.close()

    def abandon(self) -> None:
        """As if the process had died: nothing is written, nothing is called again."""
        self.session_over(self.session_id, tell=False)
        self._let_go()
        self._thread.run(self._file.close)
        self._thread.close()

    def _let_go(self) -> None:
        self._is_closed = True
        self.watches.clear()
        for bell in self._bells.values():
            if bell is not None:
                bell.close()
        self._bells.clear()
        self._is_observing = False
        self._keep_listening(set())
        for timer in (self._comparison, self._next_lapse, self._renewal):
            if timer is not None:
                timer.cancel()

    async def _in_session(self, session_id: str | None, work: Callable[[], T]) -> T:
        try:
            return await self._run(work)
        except SessionEnded:
            self.session_over(session_id)
            if self._is_observing:
                self._look_at_sessions()
            raise

    async def _run(self, work: Callable[[], T]) -> T:
        if self._is_closed:
            raise Unavailable("the cluster store is closed")
        try:
            return await self._thread.run(work)
        except sqlite3.Error as error:
            raise Unavailable(f"the cluster store failed: {error}") from error


def _number(session_id: str | None) -> int | None:
    return None if session_id is None else int(session_id)


def _label(path: str) -> str:
    """Two paths with one label only wake each other's watchers."""
    return f"{zlib.crc32(path.encode()):08x}"
