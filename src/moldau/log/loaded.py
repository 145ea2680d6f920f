"""What was found in a log's folder, or made there: what a `Log` begins with."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from moldau.log.epochs import LeaderEpochs
from moldau.log.producers import Producers
from moldau.log.segment import Segment


class LoadedLog(NamedTuple):
    """What was found in a log's folder, or made there."""

    bases: list[int]
    active: Segment
    next_offset: int
    log_start_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: Producers
    snapshot_offset: int
    """The newest snapshot's; -1 where there is none."""
    topic_id: uuid.UUID | None
    aborted_bases: Sequence[int] = ()
    """Of the segments that have an index of aborted transactions."""
