"""Data folders that are full: said in the log, tried every second, and taken up again when there is room.

Nothing here decides what a full folder means: appends fail by themselves, reads go on, and small files wait in
their logs until `on_room` has them written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from moldau.log.disk_errors import is_no_room, is_passing, reason
from moldau.log.folder import DataFolder
from moldau.runtime.ports import Runtime

logger = logging.getLogger(__name__)

TRY_EVERY_S = 1.0
SAY_EVERY_S = 60.0


class RoomWatch:
    def __init__(
        self,
        runtime: Runtime,
        on_room: Callable[[DataFolder], object],
        on_failure: Callable[[DataFolder, OSError], object],
    ) -> None:
        self._runtime = runtime
        self._on_room = on_room
        self._on_failure = on_failure

    def note(self, folder: DataFolder, error: OSError) -> None:
        """A write found no room. Told once, however many there are."""
        if folder.no_room is None and folder.failure is None:
            folder.no_room = error
            logger.error(
                "data folder %s is full (%s): produce requests to its partitions are refused until there is room;"
                " reading goes on",
                folder.path,
                reason(error),
            )
            self._runtime.tasks.spawn(self._watch(folder), name=f"room in {folder.path}")

    async def _watch(self, folder: DataFolder) -> None:
        clock, tasks = self._runtime.clock, self._runtime.tasks
        since_s = said_s = clock.monotonic()
        while True:
            await tasks.sleep(TRY_EVERY_S)
            if folder.failure is not None:
                return
            try:
                await tasks.in_thread(folder.try_room)
                break
            except OSError as error:
                if not is_no_room(error) and not is_passing(error):
                    self._on_failure(folder, error)
                    return
            if clock.monotonic() - said_s >= SAY_EVERY_S:
                said_s = clock.monotonic()
                logger.error("data folder %s is still full, for %.0f s now", folder.path, said_s - since_s)
        folder.no_room = None
        logger.warning(
            "data folder %s has room again, after %.0f s", folder.path, clock.monotonic() - since_s
        )
        self._on_room(folder)
