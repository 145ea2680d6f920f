"""What this operating system offers beyond the plain calls, the switch that forgets all of it, and what is not asked of
it for data that is thrown away.

`MOLDAU_FALLBACKS=1` makes every optional feature absent, so that the plain code that macOS and Windows run is
tested on Linux too.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Features:
    uvloop: bool
    """The faster event loop is installed."""
    sendfile: bool
    """File to socket inside the kernel. Linux only: elsewhere the call has other rules, and the plain way
    does."""
    read_nowait: bool
    """preadv(RWF_NOWAIT): a read that fails instead of waiting on the disk."""
    positional: bool
    """pread and pwrite; without them a file is sought and read under a lock."""
    syncs: bool = True
    """A sync waits for the disk. It need not for data that nobody will read after a crash of the machine."""

    @staticmethod
    def detect(*, syncs: bool = True) -> Features:
        if os.environ.get("MOLDAU_FALLBACKS", "") not in ("", "0"):
            return replace(PLAIN, syncs=syncs)
        return Features(
            uvloop=_importable("uvloop"),
            sendfile=sys.platform == "linux" and hasattr(os, "sendfile"),
            read_nowait=hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT"),
            positional=hasattr(os, "pread") and hasattr(os, "pwrite"),
            syncs=syncs,
        )


PLAIN = Features(uvloop=False, sendfile=False, read_nowait=False, positional=False)


def _importable(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True
