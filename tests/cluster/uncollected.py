"""`moldau` without the garbage collector. Once the file named first is there, it gets what the collector would find:
how many objects of which of Moldau's classes. The other arguments are the command's own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections import Counter

from moldau.cli import main

POLL_INTERVAL_S = 0.05


def find_garbage() -> Counter[str]:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    kinds = [type(found) for found in gc.garbage]
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind.__module__.startswith("moldau.")
    )


def watch(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(POLL_INTERVAL_S)
    with open(f"{path}.new", "w") as file:
        json.dump(find_garbage(), file)
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    path = sys.argv.pop(1)
    threading.Thread(target=watch, args=(path,), daemon=True).start()
    gc.disable()
    gc.collect()
    gc.enable = gc.disable  # whatever is set from here on
    main()
