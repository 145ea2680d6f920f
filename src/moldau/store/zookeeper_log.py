"""What is said while a ZooKeeper ensemble is away: one line when it goes, one a minute, one when it is back.

kazoo says two lines for each attempt to connect, several times a second. They go to a log of their own (`KAZOO`), and
show with the level `debug` only; its errors show always.
"""

from __future__ import annotations

import logging

from moldau.runtime.ports import Tasks, Timer

logger = logging.getLogger("moldau.store.zookeeper")
KAZOO = logging.getLogger("moldau.store.kazoo")
KAZOO.addFilter(lambda record: record.levelno >= logging.ERROR or KAZOO.isEnabledFor(logging.DEBUG))

REMINDER_S = 60.0


class Absence:
    """Whether the ensemble of one store can be reached, as far as people are told."""

    def __init__(self, timers: Tasks, hosts: str) -> None:
        self._timers = timers
        self._hosts = hosts
        self._timer: Timer | None = None
        self._reminders = 0

    def begin(self) -> None:
        """There is no connection any more."""
        if self._timer is None:
            logger.warning("no connection to ZooKeeper (%s): brokers go on, and nothing changes", self._hosts)
            self._reminders = 0
            self._timer = self._timers.call_later(REMINDER_S, self._remind)

    def _remind(self) -> None:
        self._reminders += 1
        minutes = self._reminders * REMINDER_S / 60
        logger.warning("still no connection to ZooKeeper (%s), for %g min", self._hosts, minutes)
        self._timer = self._timers.call_later(REMINDER_S, self._remind)

    def end(self) -> None:
        """There is one again."""
        if self._timer is not None:
            logger.info("connected to ZooKeeper again")
        self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
