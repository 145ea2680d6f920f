"""Kafka for tests, in the caller's process: `with Cluster() as cluster: cluster.bootstrap_servers`.

Nothing is imported before it is used, since pytest loads `moldau.testing.plugin` in every run on a machine that has
Moldau installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from moldau.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
