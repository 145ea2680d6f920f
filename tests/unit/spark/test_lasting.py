"""What a worker has loaded is left out of the collections that Spark makes after every task."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from moldau.spark.lasting import keep_what_is_loaded

class Node: pass

def cycle():
    node = Node()
    node.itself = node
    return id(node)

keep_what_is_loaded()
frozen = gc.get_freeze_count()
assert frozen > 1000, frozen
cycle()
assert gc.collect() > 0  # what comes later is collected as ever
keep_what_is_loaded()
assert gc.get_freeze_count() <= frozen  # nothing was loaded since
import wave
keep_what_is_loaded()
assert gc.get_freeze_count() > frozen
"""


def test_what_is_loaded_is_not_walked_again_and_garbage_is_still_freed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
