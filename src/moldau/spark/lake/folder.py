"""Files join a plain folder of Parquet, once per (application, version), for readers that just list the files.

    _moldau/staging/<application>/<version>/   what tasks have written and nobody has committed
    _moldau/commits/<application>/<version>.json   which of these became which visible file: the commit
    _moldau/schema.json                        the columns and partitions that the folder has

A batch is committed by its manifest, which appears by one rename; then each staged file is renamed to its place. The
names begin with `_` and staged files do not end in `.parquet`, so readers see visible files only, each of them whole.

What readers may rely on, at every moment and after any crash: no row is seen twice, no part of a file is seen, and all
batches before the last are seen whole. Only while the last batch is being committed some of its files may be seen
before the others; a crash just then leaves it so until the next commit to the folder (the restarted query's, or any
other) finishes it from the manifest. For batches that appear all at once choose Delta.

Commits to a folder take turns by a lock on `_moldau/lock` that the kernel frees when its process dies. Left out: power
cuts (nothing is synced to disk, as Spark does not sync its checkpoints), and compaction, which cannot be hidden from
readers that list files.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
import urllib.parse
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from moldau.spark.lake import schema as schemas
from moldau.spark.lake.files import WrittenFile
from moldau.spark.lake.locks import HIDDEN, locked
from moldau.spark.lake.options import Transaction
from moldau.spark.lake.schema import Evolution, SchemaConflict

MANIFESTS_KEPT = 100

log = logging.getLogger(__name__)


def staging_folder(transaction: Transaction) -> str:
    """Below the table's folder: where tasks of a batch put their files."""
    return f"{HIDDEN}/staging/{_quoted(transaction.app_id)}/{transaction.version}"


def stored_schema(path: str) -> tuple[Any, list[str]] | None:
    """The folder's Arrow schema and the columns that part it, None before its first batch."""
    try:
        with open(os.path.join(path, HIDDEN, "schema.json"), encoding="utf-8") as file:
            stored = json.load(file)
    except FileNotFoundError:
        return None
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(stored["arrow"])))
    return schema, stored["partitionBy"]


def evolution(path: str, rows: Any, columns: Sequence[str], merge: bool) -> Evolution:
    """How rows join the folder; its files stay as they are, so that a column cannot become wider."""
    known = stored_schema(path)
    if known is None:
        return schemas.evolve(rows, rows)
    schema, parted = known
    if parted != list(columns):
        raise SchemaConflict(
            f"the folder is partitioned by {parted or 'nothing'}, the rows by {list(columns) or 'nothing'}"
        )
    plan = schemas.evolve(schema, rows, merge)
    if plan.widened:
        raise SchemaConflict(
            f"column {plan.widened[0]} is narrower in the folder's files than in the rows"
            " (tableFormat=delta can widen it)"
        )
    return plan


class FolderWriter:
    """Commits to one folder."""

    def __init__(self, path: str, columns: Sequence[str], rows: Any, merge: bool = True) -> None:
        self.path, self.columns, self.rows, self.merge = path, tuple(columns), rows, merge

    def commit(
        self,
        moves: Sequence[tuple[WrittenFile, str]],
        transaction: Transaction,
        reached: Callable[[str], None] = lambda step: None,
    ) -> bool:
        """Make each staged file visible under its final path; False where this batch was there already."""
        with locked(self.path, "lock"):
            self._finish_others()
            if self._last_version(transaction) >= transaction.version:
                log.info("%s has batch %s already", self.path, transaction)
                self._unstage(transaction)
                return False
            if moves:
                self._require_staged(moves)
                reached("before schema")
                self._evolve()
                reached("before manifest")
                manifest = {"files": [[file.path, final, file.rows, file.size] for file, final in moves]}
                self._replace(self._manifest_path(transaction), manifest)
                reached("after manifest")
                self._roll_forward(manifest, reached)
                reached("before clean-up")
            self._unstage(transaction)
            self._prune(transaction)
        return True

    def abort(self, transaction: Transaction) -> None:
        """Forget what a failed batch has staged, unless it was committed after all."""
        with locked(self.path, "lock"):
            self._finish_others()
            self._unstage(transaction)

    def _require_staged(self, moves: Sequence[tuple[WrittenFile, str]]) -> None:
        """From the manifest on, a file that is not staged counts as moved: so all have to be there now."""
        for file, _ in moves:
            if not os.path.exists(os.path.join(self.path, file.path)):
                raise FileNotFoundError(
                    f"{self.path}: {file.path} was removed before its batch was committed"
                )

    def _finish_others(self) -> None:
        """Batches with a manifest whose process died before it had moved every file."""
        for transaction in self._staged():
            path = self._manifest_path(transaction)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    self._roll_forward(json.load(file), lambda step: None)
                self._unstage(transaction)

    def _roll_forward(self, manifest: dict[str, Any], reached: Callable[[str], None]) -> None:
        """Move what is still staged; what is not was moved before."""
        for staged, final, *_ in manifest["files"]:
            target = os.path.join(self.path, final)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            try:
                os.rename(os.path.join(self.path, staged), target)
            except FileNotFoundError:
                continue
            reached("after rename")

    def _staged(self) -> list[Transaction]:
        root = os.path.join(self.path, HIDDEN, "staging")
        return [
            Transaction(urllib.parse.unquote(app), int(version))
            for app in _entries(root)
            for version in _entries(os.path.join(root, app))
        ]

    def _unstage(self, transaction: Transaction) -> None:
        """Remove the staged files of this batch, and of the application's earlier ones."""
        app = os.path.dirname(os.path.join(self.path, staging_folder(transaction)))
        for version in _entries(app):
            if int(version) <= transaction.version:
                shutil.rmtree(os.path.join(app, version), ignore_errors=True)
        try:
            os.rmdir(app)
        except OSError:
            pass  # a later batch, or an attempt that is late

    def _evolve(self) -> None:
        plan = evolution(self.path, self.rows, self.columns, self.merge)
        if not plan.rows.equals(self.rows):
            raise SchemaConflict(f"{self.path} got other columns while this batch was written: run it again")
        known = stored_schema(self.path)
        if known is None or known[0] != plan.table:
            encoded = base64.b64encode(plan.table.serialize().to_pybytes()).decode()
            stored = {
                "arrow": encoded,
                "partitionBy": list(self.columns),
                "columns": str(plan.table).splitlines(),
            }
            self._replace(os.path.join(self.path, HIDDEN, "schema.json"), stored)

    def _last_version(self, transaction: Transaction) -> int:
        return max(self._versions(transaction), default=-1)

    def _versions(self, transaction: Transaction) -> list[int]:
        folder = os.path.dirname(self._manifest_path(transaction))
        return sorted(int(name.removesuffix(".json")) for name in _entries(folder) if name.endswith(".json"))

    def _prune(self, transaction: Transaction) -> None:
        """The last manifest says what is committed; some more are kept to look at."""
        for version in self._versions(transaction)[:-MANIFESTS_KEPT]:
            os.unlink(self._manifest_path(Transaction(transaction.app_id, version)))

    def _manifest_path(self, transaction: Transaction) -> str:
        app = _quoted(transaction.app_id)
        return os.path.join(self.path, HIDDEN, "commits", app, f"{transaction.version}.json")

    def _replace(self, path: str, content: dict[str, Any]) -> None:
        """Write a file that appears whole or not at all."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        draft = f"{path}.{uuid.uuid4().hex}.draft"
        try:
            with open(draft, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.rename(draft, path)
        except OSError:
            if os.path.exists(draft):
                os.unlink(draft)
            raise


def visible_files(path: str) -> list[str]:
    """The Parquet files that a reader of the folder sees, by their paths below it."""
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        below = os.path.relpath(folder, path)
        found += [
            os.path.normpath(os.path.join(below, name))
            for name in sorted(names)
            if name.endswith(".parquet") and not name.startswith(("_", "."))
        ]
    return found


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _quoted(app_id: str) -> str:
    """An application's name as a file name that is no dot."""
    return urllib.parse.quote(app_id, safe="").replace(".", "%2E")
