"""All attacks, in the order in which they run."""

from __future__ import annotations

from . import from_schema, issue
from .attack import Attack


def all_attacks() -> list[Attack]:
    return [
        *issue.rows(),
        *from_schema.on_arrays(),
        *from_schema.on_tagged_fields(),
        *from_schema.pipelines(),
    ]
