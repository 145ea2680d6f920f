"""Data folders that are full: said in the log, tried every second, and taken up again when there is room.

There is room when the largest write that was refused would fit: on a nearly full disk small messages are stored while
large ones are not, and a folder that is well whenever a small one fits would change its state every second. A write
that nobody has asked for again for WANTED_S_MAX counts no more.

Nothing here decides what a full folder means: appends fail by themselves, reads go on, and small things (files that
wait in their logs, logs to be created) wait until `on_room` has them written: as soon as they fit, whatever else does
not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from moldau.log.disk_errors import is_no_room, is_passing, reason
from moldau.log.folder import ROOM_TRIED_BYTES, DataFolder
from moldau.runtime.ports import Runtime

logger = logging.getLogger(__name__)

TRY_EVERY_S = 1.0
SAY_EVERY_S = 60.0
WANTED_S_MAX = 60.0


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

    def note(self, folder: DataFolder, error: OSError, wanted_bytes: int) -> None:
        """A write of so many bytes found no room, or (0) something small did that is to be done later. Told once,
        however many there are."""
        if folder.failure is not None:
            return
        if wanted_bytes:
            folder.wanted_bytes = max(folder.wanted_bytes, wanted_bytes)
            folder.wanted_s = self._runtime.clock.monotonic()
        else:
            folder.has_put_off = True
        if folder.no_room is None:
            folder.no_room = error
            logger.error(
                "data folder %s is full (%s): produce requests to its partitions that do not fit are refused until"
                " there is room for them; reading goes on",
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
                if await self._has_room(folder):
                    break
            except OSError as error:
                if not is_no_room(error) and not is_passing(error):
                    self._on_failure(folder, error)
                    return
            if clock.monotonic() - said_s >= SAY_EVERY_S:
                said_s = clock.monotonic()
                logger.error(
                    "data folder %s is still full, for %.0f s now: %d bytes were refused, and do not fit",
                    folder.path,
                    said_s - since_s,
                    folder.wanted_bytes,
                )
        folder.no_room = None
        folder.wanted_bytes = 0
        folder.has_put_off = False
        logger.warning(
            "data folder %s has room again, after %.0f s", folder.path, clock.monotonic() - since_s
        )
        self._on_room(folder)

    async def _has_room(self, folder: DataFolder) -> bool:
        """For all that was refused: OSError, or False where more was refused meanwhile. What is small is done first."""
        tasks = self._runtime.tasks
        if self._runtime.clock.monotonic() - folder.wanted_s >= WANTED_S_MAX:
            folder.wanted_bytes = 0
        await tasks.in_thread(folder.try_room, ROOM_TRIED_BYTES)
        wanted_bytes = folder.wanted_bytes
        if wanted_bytes > ROOM_TRIED_BYTES:
            if folder.has_put_off:
                folder.has_put_off = False
                self._on_room(folder)
            await tasks.in_thread(folder.try_room, wanted_bytes + ROOM_TRIED_BYTES)
        return folder.wanted_bytes <= wanted_bytes
