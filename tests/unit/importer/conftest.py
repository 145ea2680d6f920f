"""The data folders of a small Apache Kafka node that was stopped cleanly (tests/golden/kraft.py made them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.kraft import unpack


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy of its own, with the `log.dirs` a and b."""
    return unpack(tmp_path / "kafka")


@pytest.fixture
def metadata(node: Path) -> Path:
    return node / "a" / "__cluster_metadata-0"
