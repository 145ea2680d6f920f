"""Delta tables as Arrow reads them, through files of its own: with those that deltalake gives it, which run Python, the
process ends by an abort at times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem


def files_of(path: Path) -> SubTreeFileSystem:
    return SubTreeFileSystem(str(path), LocalFileSystem())


def dataset_of(path: Path) -> Any:
    return DeltaTable(str(path)).to_pyarrow_dataset(filesystem=files_of(path))


def table_of(path: Path) -> pa.Table:
    return dataset_of(path).to_table()


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table_of(path).to_pylist()
    return rows
