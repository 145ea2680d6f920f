"""What verifying finds in a data folder, as values.

A finding says how bad it is from the reader's point of view:
- DAMAGE: data is lost or wrong, or an answer may be wrong. Nothing mends it by itself.
- REPAIR: the next start of the broker puts it right, and nothing is lost by that.
- NOTE: worth knowing, nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class Severity(Enum):
    DAMAGE = "damage"
    REPAIR = "repair"
    NOTE = "note"


class Kind(Enum):
    """What was found, for programs; the texts are for people."""

    # in .log files
    CHECKSUM = "checksum"
    NOT_A_BATCH = "not-a-batch"
    TORN_TAIL = "torn-tail"
    ZEROES = "zeroes"
    OFFSETS = "offsets"
    GAP = "gap"
    MISPLACED = "misplaced"
    LEADER_EPOCH = "leader-epoch"
    RECORDS = "records"
    # in indexes
    INDEX_MISSING = "index-missing"
    INDEX_CUT = "index-cut"
    INDEX_ENTRY = "index-entry"
    INDEX_ZEROES = "index-zeroes"
    INDEX_SHORT = "index-short"
    # in the small files
    SNAPSHOT = "snapshot"
    EPOCHS = "epochs"
    METADATA = "metadata"
    IDENTITY = "identity"
    CHECKPOINT = "checkpoint"
    # of files and folders
    UNREADABLE = "unreadable"
    LEFTOVER = "leftover"
    FOREIGN = "foreign"
    SKIPPED = "skipped"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    kind: Kind
    path: str
    position: int | None
    """The byte at which it begins, where it is a part of a file."""
    what: str
    """What is there, as the end of a sentence that begins with the place."""
    advice: str = ""
    """What it means, and what to do."""


@dataclass(slots=True)
class Seen:
    """What was looked at so far."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    on_segment: Callable[[str], object] = field(default=lambda path: None)
    """Told which segment is read next: for whoever waits."""


REMOVE_INDEX = "Stop the broker and remove the file: the next start builds it anew from the log."
RESTORE = "Restore the file from a replica or a copy, if there is one."


def unreadable(path: str, error: OSError) -> Finding:
    return Finding(
        Severity.DAMAGE,
        Kind.UNREADABLE,
        path,
        None,
        f"cannot be read: {(error.strerror or str(error)).lower()}",
        "See that this user may read it; if it is the disk, take a copy of what is left at once.",
    )


def offsets_text(first: int, last: int) -> str:
    """`offset 5`, `offsets 5 to 7`."""
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
