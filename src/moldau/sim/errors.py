"""Operating errors of the simulated world, with the numbers and classes of real ones."""

from __future__ import annotations

import errno


def os_error(number: int, about: str | None = None) -> OSError:
    """OSError picks its own class by the number: FileNotFoundError, ConnectionResetError, ..."""
    return OSError(number, errno.errorcode[number], about)
