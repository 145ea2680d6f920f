"""What a start has mended in the logs of a data folder, in one line.

After a crash it is nothing special that small files and indexes were not written yet, and that the end of a log is
torn: they are counted, over all logs. After a clean stop each of it is damage, and said by itself. What is lost
although it was on the disk is always said by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Mend(Enum):
    EPOCHS = "leader epochs made anew from the batches"
    INDEXES = "indexes built anew"
    ENDS = "ends cut off that a crash had torn"


class Mended(NamedTuple):
    """One thing, in one log."""

    what: Mend
    cut_bytes: int = 0


def summary(logs: Iterable[list[Mended]]) -> str:
    """`60 leader epochs made anew from the batches, 2 ends cut off that a crash had torn (312 bytes)`."""
    counts = dict.fromkeys(Mend, 0)
    cut_bytes = 0
    for mended in logs:
        for what, size in mended:
            counts[what] += 1
            cut_bytes += size
    told = [f"{count:,} {what.value}" for what, count in counts.items() if count]
    return ", ".join(told) + (f" ({cut_bytes:,} bytes)" if cut_bytes else "")
