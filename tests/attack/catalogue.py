"""All attacks, in the order in which they run."""

from __future__ import annotations

from . import bombs, floods, from_schema, giant, issue
from .attack import Attack


def all_attacks() -> list[Attack]:
    return [
        *issue.rows(),
        *bombs.batches(),
        *bombs.expressions(),
        *floods.unread_answers(),
        *floods.connections(),
        *giant.all_giants(),
        *from_schema.on_arrays(),
        *from_schema.on_tagged_fields(),
        *from_schema.pipelines(),
    ]
