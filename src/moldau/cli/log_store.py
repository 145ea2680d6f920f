"""What the cluster store beside a data folder says of topics: their ids, against which those in the logs are held.

Read without touching the file: as immutable, and not at all while changes wait in its write-ahead log.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from urllib.request import pathname2url

from moldau.cli.data_folder import STORE_FILE
from moldau.store.port import unquoted


def topic_ids(data_folder: str) -> dict[str, uuid.UUID] | None:
    """The ids by topic; None where there is no store to ask."""
    inside = os.path.join(data_folder, STORE_FILE)
    beside = os.path.join(os.path.dirname(os.path.abspath(data_folder)), STORE_FILE)
    path = inside if os.path.exists(inside) else beside
    wal = path + "-wal"
    if not os.path.exists(path) or (os.path.exists(wal) and os.path.getsize(wal)):
        return None
    try:
        connection = sqlite3.connect(
            f"file:{pathname2url(os.path.abspath(path))}?mode=ro&immutable=1", uri=True
        )
        try:
            rows = connection.execute("SELECT path, value FROM entries WHERE parent = '/topics'").fetchall()
        finally:
            connection.close()
        return {unquoted(name.rpartition("/")[2]): uuid.UUID(json.loads(value)["id"]) for name, value in rows}
    except (sqlite3.Error, ValueError, KeyError):
        return None  # damaged: `moldau doctor` tells of it
