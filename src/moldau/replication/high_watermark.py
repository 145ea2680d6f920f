"""The high watermark: the offset below which a record is committed, because every replica that counts has it. Pure.

Who counts: the leader, with what is as durable as the topic asks; every member of the in-sync set, committed or only
proposed (KIP-497: whichever of the two the controller takes, what was committed is on all its members); and a replica
that has caught up and is about to be taken in. While the in-sync set is smaller than `min.insync.replicas` it stands
still (KIP-966). It never moves back.
"""

from __future__ import annotations

from collections.abc import Iterable


def next_high_watermark(
    before: int, leader_offset: int, follower_offsets: Iterable[int], *, has_enough_in_sync: bool
) -> int:
    """`follower_offsets`: up to where each of those that count has the log; -1 where that is not known."""
    if not has_enough_in_sync:
        return before
    return max(before, min(leader_offset, min(follower_offsets, default=leader_offset)))
