"""The steps, by subject. Importing this package registers all of them."""

from __future__ import annotations

from . import delete_records, fetch, offsets, produce

__all__ = ["SETTINGS", "delete_records", "fetch", "offsets", "produce"]

SETTINGS = {
    "num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "group.coordinator.rebalance.protocols": "classic",
}
"""What both brokers are started with."""
