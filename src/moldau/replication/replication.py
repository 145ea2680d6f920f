"""What all partitions of a broker share: who they are, whom they wake, and whom they ask for another in-sync set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.base.errors import ErrorCode
from moldau.replication.deadlines import Deadlines
from moldau.replication.long_polls import LongPolls
from moldau.replication.quota import QuotaWindow
from moldau.replication.throttle import Throttle
from moldau.runtime.ports import Runtime

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

REPLICA_LAG_MAX_S = 30.0
DEFAULT_QUOTA_WINDOW = QuotaWindow()


class Write:
    """Something appended that is answered when it is committed, or when its time is up."""

    __slots__ = ("deadline_s", "done", "next_offset")

    def __init__(self, next_offset: int, deadline_s: float, done: Callable[[ErrorCode], object]) -> None:
        self.next_offset = next_offset
        self.deadline_s = deadline_s
        self.done: Callable[[ErrorCode], object] | None = done
        """None when it is answered."""

    @property
    def is_done(self) -> bool:
        return self.done is None


class Replication:
    def __init__(
        self, node_id: int, runtime: Runtime, quota_window: QuotaWindow = DEFAULT_QUOTA_WINDOW
    ) -> None:
        self.node_id = node_id
        self.clock = runtime.clock
        self.long_polls = LongPolls(runtime.tasks, runtime.clock)
        self._writes = Deadlines[Write](runtime.tasks, runtime.clock, self._time_out)
        self.leader_throttle = Throttle(runtime, quota_window)
        """Of what this broker sends to followers that are not in sync."""
        self.follower_throttle = Throttle(runtime, quota_window)
        """Of what it copies where it is not in sync itself."""
        self.replica_lag_max_s = REPLICA_LAG_MAX_S
        self.elections = self.unclean_elections = 0
        """Partitions that this broker has begun to lead; those that it leads without all that was committed."""
        self.is_eligible: Callable[[int, int], bool] = lambda _broker_id, _broker_epoch: True
        """Whether a broker is alive, in this epoch, as far as this one knows."""
        self.on_wish: Callable[[Partition], object] = lambda _partition: None
        """A partition's leader wants another in-sync set."""

    @property
    def writes_waiting(self) -> int:
        return self._writes.living

    def wait(self, write: Write) -> None:
        self._writes.add(write)

    def finish(self, write: Write, error: ErrorCode) -> None:
        done = write.done
        if done is not None:
            write.done = None
            self._writes.note_done()
            done(error)

    def _time_out(self, write: Write) -> None:
        self.finish(write, ErrorCode.request_timed_out)

    def close(self) -> None:
        self.leader_throttle.close()
        self.follower_throttle.close()
        self.long_polls.close()
        self._writes.close()
