"""The store's tree as a plain object: entries, sessions and their ephemeral entries, in memory.

Pure: whoever holds it decides when a session is over, and tells the watchers which paths have changed. The store in
memory and the simulated store's host are built on it.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    parent_of,
)


class Tree:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.owners: dict[str, str] = {}
        """Ephemeral entries, and the session that each belongs to."""
        self.sessions: dict[str, None] = {}
        self._names: dict[str, dict[str, None]] = {}
        """The paths directly below a path."""
        self._sessions_begun = 0
        self._candidates: dict[str, int] = {}

    def children(self, path: str) -> list[Entry]:
        return [self.entries[child] for child in sorted(self._names.get(path, ()))]

    def multi(self, operations: Sequence[Operation], session_id: str | None = None) -> list[str]:
        """The paths that have changed. Conflict, SessionEnded: nothing has."""
        if session_id is not None and session_id not in self.sessions:
            raise SessionEnded(f"the session {session_id} is over")
        before: list[tuple[str, Entry | None, str | None]] = []
        try:
            for operation in operations:
                path = operation.path
                before.append((path, self.entries.get(path), self.owners.get(path)))
                self._apply(operation, session_id)
        except (Conflict, SessionEnded):
            for path, entry, owner in reversed(before):
                self._set(path, entry, owner)
            raise
        return [operation.path for operation in operations if not isinstance(operation, Check)]

    def begin_session(self) -> str:
        self._sessions_begun += 1
        session_id = str(self._sessions_begun)
        self.sessions[session_id] = None
        return session_id

    def end_session(self, session_id: str) -> list[str]:
        """The paths that are gone; none where it was over already."""
        self.sessions.pop(session_id, None)
        paths = [path for path, owner in self.owners.items() if owner == session_id]
        for path in paths:
            self._set(path, None, None)
        return paths

    def create_candidate(self, path: str, value: bytes, session_id: str | None) -> str:
        """The candidate that the session has there already, where a former answer was lost."""
        for candidate in self._names.get(path, ()):
            if session_id is not None and self.owners.get(candidate) == session_id:
                return candidate
        number = self._candidates.get(path, 0)
        created = f"{path}/{candidate_name(number)}"
        self.multi([Create(created, value, ephemeral=True)], session_id)
        self._candidates[path] = number + 1
        return created

    def _apply(self, operation: Operation, session_id: str | None) -> None:
        path = operation.path
        entry = self.entries.get(path)
        if isinstance(operation, Create):
            if operation.ephemeral and session_id is None:
                raise SessionEnded("an ephemeral entry needs a session")
            if entry is not None:
                raise Conflict(path)
            self._set(path, Entry(path, operation.value, 0), session_id if operation.ephemeral else None)
            return
        if entry is None or operation.version not in (ANY_VERSION, entry.version):
            raise Conflict(path)
        if isinstance(operation, Delete):
            self._set(path, None, None)
        elif isinstance(operation, Put):
            self.entries[path] = Entry(path, operation.value, entry.version + 1)

    def _set(self, path: str, entry: Entry | None, owner: str | None) -> None:
        names = self._names.setdefault(parent_of(path), {})
        if entry is None:
            self.entries.pop(path, None)
            names.pop(path, None)
            if not names:
                del self._names[parent_of(path)]
        else:
            self.entries[path] = entry
            names[path] = None
        if owner is None:
            self.owners.pop(path, None)
        else:
            self.owners[path] = owner
