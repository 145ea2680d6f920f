"""What a broker needs soon after its start, and not for it: the handlers of the APIs, the coordinators' decisions.

Each is imported when it is first asked for, which holds up the loop for some milliseconds. `load_the_rest` does it
before, in a thread beside a broker that serves already.
"""

from __future__ import annotations

from moldau.broker.handlers import ROUTES


def load_the_rest() -> None:
    import moldau.coordinator.group.shard
    import moldau.coordinator.transaction.shard  # noqa: F401 (to have it imported)

    for route in ROUTES.values():
        _ = route.handle
