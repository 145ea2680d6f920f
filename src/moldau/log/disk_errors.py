"""What an error of the disk means for the data folder that it comes from.

- No room (ENOSPC, EDQUOT): nothing is lost and nothing is in doubt. Who writes gets the error, who reads goes
  on, and small files are written once there is room again.
- Passing (out of descriptors or memory): the call was never made. It is tried again.
- Of one log (a name that is too long, taken, or not ours to use): the disk is well, and what the others hold is not
  in doubt. That log is offline, and its folder in use.
- Everything else while writing or syncing: what the disk holds is no longer known, and the folder is failed for
  this life of the broker. What was acknowledged after a sync is there at the next start.

An error while reading is told to whoever reads, and changes nothing: a bad sector is no reason to give up the
rest of a disk.
"""

from __future__ import annotations

import errno


class DamagedLog(OSError):
    """One log is not as it was left: it is offline, and the next start checks it. Its folder is in use."""


class NotWrittenYet(OSError):
    """What is to be synced waits in memory for room. A sync that found no room itself is another thing: it failed."""


NO_ROOM = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})
PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})
OF_ONE_LOG = frozenset(
    {
        errno.ENAMETOOLONG,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ELOOP,
        errno.EMLINK,
        errno.EINVAL,
        errno.EILSEQ,
        errno.EFBIG,
    }
)


def is_no_room(error: OSError) -> bool:
    return error.errno in NO_ROOM


def is_passing(error: OSError) -> bool:
    return error.errno in PASSING


def is_of_one_log(error: OSError) -> bool:
    return isinstance(error, DamagedLog) or error.errno in OF_ONE_LOG


def reason(error: OSError) -> str:
    """The error as a part of a sentence, without Python's number and path."""
    return (error.strerror or str(error)).lower()
