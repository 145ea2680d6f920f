"""Imports kio without hypothesis.

Where hypothesis is installed, kio imports it to register strategies for its own types. A broker, or a test that only
wants a cluster, has no use for that and would pay 0.3 s and 20 MB for it. So hypothesis is hidden while kio's base is
imported, unless the process has imported it already.
"""

from __future__ import annotations

import sys

if "hypothesis" not in sys.modules and "kio.static._phantom" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
