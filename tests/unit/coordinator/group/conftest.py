"""A group coordinator that does not wait for more members before the first generation."""

from __future__ import annotations

import pytest

from .support import Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()
