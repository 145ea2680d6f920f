"""The SQLite file of the cluster store: every method is one transaction. Blocking, and used by one thread at a time.

`multi` is durable when it returns (write-ahead log, fsync at every commit); leases of sessions are not, since a
machine that starts again has no sessions. A session is a row; it is over when the row is gone, and whoever finds its
lease lapsed, or its process dead, removes the row with the session's entries. SQLite does its own file access: with
`runtime.real` this is the only module that does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from moldau.store.engine import candidate_name
from moldau.store.port import (
    ANY_VERSION,
    Check,
    Conflict,
    Create,
    Delete,
    Entry,
    Operation,
    Put,
    SessionEnded,
    TooNew,
    Unknown,
    parent_of,
)

T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
"""How long one process waits for another that is in a transaction on the same file."""
CLOCK_SLACK_S = 1.0
"""A lease that ends later than a whole time-out from now is of another boot of the machine."""
FORMAT = 2
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS entries (
        path TEXT PRIMARY KEY, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL
    ) WITHOUT ROWID""",
    # The session that an entry belongs to, and the number of the change that wrote it.
    "ALTER TABLE entries ADD COLUMN owner INTEGER",
    "ALTER TABLE entries ADD COLUMN changed INTEGER NOT NULL DEFAULT 0",
    "DROP INDEX IF EXISTS entries_by_parent",
    "CREATE INDEX entries_by_change ON entries (parent, changed)",
    "CREATE INDEX entries_by_owner ON entries (owner) WHERE owner IS NOT NULL",
    """CREATE TABLE sessions (
        id INTEGER PRIMARY KEY, lease_s REAL NOT NULL, timeout_s REAL NOT NULL, has_lifeline INTEGER NOT NULL
    )""",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version={FORMAT}",
)


class SessionRow(NamedTuple):
    id: int
    lease_s: float
    """When it lapses, by the machine's boot clock."""
    timeout_s: float
    has_lifeline: int

    def has_lapsed(self, now_s: float) -> bool:
        return not now_s <= self.lease_s <= now_s + self.timeout_s + CLOCK_SLACK_S


class SqliteFile:
    def __init__(self, path: str, boot_s: Callable[[], float], *, syncs: bool = True) -> None:
        """sqlite3.Error where it cannot be opened or is not a store, TooNew where its format is a later one.
        `syncs`: not where it is thrown away.
        """
        self._boot_s = boot_s
        self._durably = f"PRAGMA synchronous={'FULL' if syncs else 'OFF'}"
        # isolation_level=None: transactions begin and end where the code says so.
        self._connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            found = self._format()
            if found > FORMAT:
                raise TooNew(
                    f"the cluster store {path} has format {found}, and this version knows {FORMAT} at most"
                )
            self._execute("PRAGMA journal_mode=WAL")
            self._execute(self._durably)
            if found != FORMAT:
                self._in_transaction(self._upgrade)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str) -> Entry | None:
        row = self._execute("SELECT path, value, version FROM entries WHERE path = ?", path).fetchone()
        return None if row is None else Entry(*row)

    def children(self, path: str) -> list[Entry]:
        rows = self._execute("SELECT path, value, version FROM entries WHERE parent = ? ORDER BY path", path)
        return [Entry(*row) for row in rows]

    def multi(self, operations: Sequence[Operation], session_id: int | None) -> None:
        def change() -> None:
            self._require(session_id)
            number = self._next("change")
            for operation in operations:
                self._apply(operation, session_id, number)

        self._in_transaction(change)

    def create_candidate(self, path: str, value: bytes, session_id: int) -> str:
        def change() -> str:
            self._require(session_id)
            created = f"{path}/{candidate_name(self._next(f'candidates of {path}'))}"
            self._apply(Create(created, value, ephemeral=True), session_id, self._next("change"))
            return created

        return self._in_transaction(change)

    # Sessions

    def next_session(self) -> int:
        """An id that no other session has or will have."""
        return self._in_transaction(lambda: self._next("session"))

    def begin_session(self, session_id: int, timeout_s: float, has_lifeline: bool) -> float:
        """When its lease lapses."""
        lease_s = self._boot_s() + timeout_s
        row = (session_id, lease_s, timeout_s, int(has_lifeline))
        self._in_transaction(lambda: self._execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", *row))
        return lease_s

    def renew(self, session_id: int) -> float:
        """When its lease lapses now. SessionEnded where it has lapsed before."""

        def change() -> float:
            row = self._require(session_id)
            assert row is not None
            lease_s = self._boot_s() + row.timeout_s
            self._execute("UPDATE sessions SET lease_s = ? WHERE id = ?", lease_s, session_id)
            return lease_s

        self._execute("PRAGMA synchronous=NORMAL")  # the next durable commit makes it durable too
        try:
            return self._in_transaction(change)
        finally:
            self._execute(self._durably)

    def sessions(self) -> list[SessionRow]:
        rows = self._execute("SELECT id, lease_s, timeout_s, has_lifeline FROM sessions ORDER BY id")
        return [SessionRow(*row) for row in rows]

    def end_session(self, session_id: int, *, only_if_lapsed: bool = False) -> list[str] | None:
        """The entries that went with it; None where it was over already, or has not lapsed."""
        if self._session(session_id) is None:
            return None

        def change() -> list[str] | None:
            row = self._session(session_id)
            if row is None or (only_if_lapsed and not row.has_lapsed(self._boot_s())):
                return None
            return self._remove_session(session_id)

        return self._in_transaction(change)

    # Watches

    def data_version(self) -> int:
        """Another number where another process or this one has written since."""
        version: int = self._execute("PRAGMA data_version").fetchone()[0]
        return version * 1_000_003 + self._connection.total_changes

    def fingerprints(self, paths: Iterable[str]) -> dict[str, tuple[object, ...]]:
        """Of each path: it differs where the entry or its children have."""
        return {path: self._fingerprint(path) for path in paths}

    def _fingerprint(self, path: str) -> tuple[object, ...]:
        # What is gone lowers the count, unless something newer has come, which raises the maximum.
        entry = self._execute("SELECT changed FROM entries WHERE path = ?", path).fetchone()
        below = self._execute("SELECT count(*), max(changed) FROM entries WHERE parent = ?", path).fetchone()
        return (entry, below)

    # Steps of a transaction

    def _apply(self, operation: Operation, session_id: int | None, number: int) -> None:
        path = operation.path
        if isinstance(operation, Create):
            self._create(operation, session_id, number)
            return
        if isinstance(operation, Put):
            done = self._execute(
                "UPDATE entries SET value = ?, version = version + 1, changed = ? WHERE path = ? AND ? IN (version, ?)",
                *(operation.value, number, path, operation.version, ANY_VERSION),
            ).rowcount
        elif isinstance(operation, Delete):
            done = self._execute(
                "DELETE FROM entries WHERE path = ? AND ? IN (version, ?)",
                *(path, operation.version, ANY_VERSION),
            ).rowcount
        else:
            assert isinstance(operation, Check)
            found = self._execute("SELECT version FROM entries WHERE path = ?", path).fetchone()
            done = found is not None and operation.version in (ANY_VERSION, found[0])
        if not done:
            raise Conflict(path)

    def _create(self, operation: Create, session_id: int | None, number: int) -> None:
        path, parent = operation.path, parent_of(operation.path)
        if operation.ephemeral and session_id is None:
            raise SessionEnded("an ephemeral entry needs a session")
        owner = session_id if operation.ephemeral else None
        done = self._execute(
            "INSERT OR IGNORE INTO entries (path, parent, value, version, owner, changed) VALUES (?, ?, ?, 0, ?, ?)",
            *(path, parent, operation.value, owner, number),
        )
        if done.rowcount != 1:
            raise Conflict(path)

    def _session(self, session_id: int) -> SessionRow | None:
        row = self._execute(
            "SELECT id, lease_s, timeout_s, has_lifeline FROM sessions WHERE id = ?", session_id
        ).fetchone()
        return None if row is None else SessionRow(*row)

    def _require(self, session_id: int | None) -> SessionRow | None:
        """SessionEnded where the session is over, or its lease has lapsed and nobody has seen it yet."""
        if session_id is None:
            return None
        row = self._session(session_id)
        if row is None or row.has_lapsed(self._boot_s()):
            raise SessionEnded(f"the session {session_id} is over")
        return row

    def _remove_session(self, session_id: int) -> list[str]:
        rows = self._execute("DELETE FROM entries WHERE owner = ? RETURNING path", session_id).fetchall()
        self._execute("DELETE FROM sessions WHERE id = ?", session_id)
        return sorted(path for (path,) in rows)

    def _next(self, counter: str) -> int:
        value: int = self._execute(
            "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
            counter,
        ).fetchall()[0][0]
        return value

    def _upgrade(self) -> None:
        if self._format() != FORMAT:  # else another process was faster
            for statement in _SCHEMA:
                self._execute(statement)

    def _format(self) -> int:
        found: int = self._execute("PRAGMA user_version").fetchone()[0]
        return found

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def _in_transaction(self, work: Callable[[], T]) -> T:
        self._execute("BEGIN IMMEDIATE")
        try:
            result = work()
        except BaseException:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            raise
        try:
            self._execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            raise Unknown(f"the cluster store failed while it wrote: {error}") from error
        return result
