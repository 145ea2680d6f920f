"""Why a range of offsets cannot be read. Each says the topic, the partition, the offset and what to do, where one can.

Spark runs a failed task again, so nothing here is lost; what another try may mend is tried again before it is raised.
"""

from __future__ import annotations


class ReadFailed(Exception):
    """The range was not read: no progress in time, or an answer that no further try will change."""


class DataLoss(ReadFailed):
    """Offsets of the range are no longer there. With `failOnDataLoss=false` they are skipped instead."""


class TopicRecreated(DataLoss):
    """The topic of the plan is gone, and another one has its name."""


class CorruptData(ReadFailed):
    """A batch is not what its checksum says, or its records do not fit together."""


class UnsupportedFormat(ReadFailed):
    """Records of the formats before v2 (Kafka 0.11), or of a codec that nobody has heard of."""


class SecurityFailed(ReadFailed):
    """The broker, or this client, refuses the other: a certificate, a password, a missing permission."""


def what_is_gone(position: int, next_offset: int, log_start: int, log_end: int) -> tuple[int, str]:
    """Of a range that is read from `position` on and is not in the log any more: where to go on, and the reason."""
    reached = min(max(log_start, position), next_offset)
    lost_to = next_offset if position > log_end else reached
    return lost_to, (
        f"the offsets {position} to {lost_to - 1} are gone: the log has {log_start} to {log_end - 1} now. "
        "They were deleted (by retention, or with the topic); set failOnDataLoss=false to skip what is gone"
    )
