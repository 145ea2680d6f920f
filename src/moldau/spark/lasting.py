"""What a worker has loaded stays, and the garbage collector need not walk over it again.

Spark's daemon collects garbage after every task. With numba loaded that takes 50 ms, more than all the rest of a small
task; so what is there when a task has ended is left out of later collections. Objects are freed as ever when nothing
refers to them; only cycles among those that were there stay.
"""

from __future__ import annotations

import gc
import sys

_modules_before = 0


def keep_what_is_loaded() -> None:
    """Once, and again where modules have come since."""
    global _modules_before
    if len(sys.modules) != _modules_before:
        _modules_before = len(sys.modules)
        gc.collect()
        gc.freeze()
