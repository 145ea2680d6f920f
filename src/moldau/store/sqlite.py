"""The cluster store in one SQLite file: for brokers of one machine, with nothing else to install or run.

`multi` is one transaction, and durable when it returns (write-ahead log, fsync on every commit). The one
connection is used on a thread through Tasks, one operation after the other, so the loop never waits for the
disk. SQLite does its own file access: with `runtime.real` this is the only module that does, and the
simulation uses `store.memory` instead.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from moldau.runtime.ports import Tasks
from moldau.store.port import ANY_VERSION, Check, Conflict, Create, Delete, Entry, Operation

T = TypeVar("T")

# How long one process waits for another that is in a transaction on the same file.
_BUSY_TIMEOUT_S = 10.0
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS entries (
        path TEXT PRIMARY KEY, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS entries_by_parent ON entries (parent);
"""


class SqliteStore:
    def __init__(self, tasks: Tasks, connection: sqlite3.Connection) -> None:
        self._tasks = tasks
        self._connection = connection
        self._in_turn = asyncio.Lock()

    @classmethod
    async def open(cls, tasks: Tasks, path: str) -> SqliteStore:
        """OSError where the file cannot be opened or is not a store."""
        try:
            return cls(tasks, await tasks.in_thread(_connect, path))
        except sqlite3.Error as error:
            raise OSError(f"cannot open the cluster store {path}: {error}") from error

    async def get(self, path: str) -> Entry | None:
        return await self._run(lambda: self._get(path))

    async def children(self, path: str) -> list[Entry]:
        return await self._run(lambda: self._children(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        await self._run(lambda: self._multi(operations))

    async def close(self) -> None:
        await self._run(self._connection.close)

    async def _run(self, work: Callable[[], T]) -> T:
        async with self._in_turn:
            try:
                return await self._tasks.in_thread(work)
            except sqlite3.Error as error:
                raise OSError(f"the cluster store failed: {error}") from error

    def _get(self, path: str) -> Entry | None:
        row = self._connection.execute(
            "SELECT path, value, version FROM entries WHERE path = ?", (path,)
        ).fetchone()
        return None if row is None else Entry(*row)

    def _children(self, path: str) -> list[Entry]:
        rows = self._connection.execute(
            "SELECT path, value, version FROM entries WHERE parent = ? ORDER BY path", (path,)
        )
        return [Entry(*row) for row in rows]

    def _multi(self, operations: Sequence[Operation]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for operation in operations:
                self._apply(operation)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _apply(self, operation: Operation) -> None:
        path = operation.path
        if isinstance(operation, Create):
            done = self._connection.execute(
                "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, 0)",
                (path, path.rpartition("/")[0], operation.value),
            )
        elif isinstance(operation, Check):
            # Found or not, the row is the condition: an update to itself counts it like the others.
            done = self._connection.execute(
                "UPDATE entries SET version = version WHERE path = ? AND version = ?",
                (path, operation.version),
            )
        elif isinstance(operation, Delete):
            done = self._connection.execute(
                "DELETE FROM entries WHERE path = ? AND ? IN (version, ?)",
                (path, operation.version, ANY_VERSION),
            )
        else:
            done = self._connection.execute(
                "UPDATE entries SET value = ?, version = version + 1 WHERE path = ? AND ? IN (version, ?)",
                (operation.value, path, operation.version, ANY_VERSION),
            )
        if done.rowcount != 1:
            raise Conflict(path)


def _connect(path: str) -> sqlite3.Connection:
    # isolation_level=None: transactions begin and end where the code says so.
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection
