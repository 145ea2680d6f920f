"""Which brokers hold a new partition: replicas spread round the brokers, leaders too; and checks of a manual
choice.

Placement by racks and by load comes with several brokers; with what is here every broker gets the same number
of replicas and leaders, give or take one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.records import PartitionState


def place(
    brokers: Collection[int], partitions: int, replication_factor: int, first: int
) -> list[tuple[int, ...]]:
    """The replicas of each of so many new partitions, the leader first; `first` is the number of the first
    of them.
    """
    ids = sorted(brokers)
    if replication_factor > len(ids):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(ids)} broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        )
    return [_replicas(ids, partition, replication_factor) for partition in range(first, first + partitions)]


def _replicas(ids: list[int], partition: int, replication_factor: int) -> tuple[int, ...]:
    # Followers step on by one more with each round of leaders: what one broker leads is not all on one other.
    others, rounds = len(ids) - 1, partition // len(ids)
    followers = [1 + (rounds + follower) % others for follower in range(replication_factor - 1)]
    return tuple(ids[(partition + step) % len(ids)] for step in (0, *followers))


def check_manual_assignment(brokers: Collection[int], replicas: Sequence[int]) -> None:
    def refuse(reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {reason}"
        )

    if not replicas:
        raise refuse("an empty replica list.")
    seen = set()
    for broker in sorted(replicas):
        if broker not in brokers:
            raise refuse(f"broker {broker}, but no such broker is registered.")
        if broker in seen:
            raise refuse(f"the broker {broker} more than once.")
        seen.add(broker)


def new_partition(replicas: tuple[int, ...]) -> PartitionState:
    return PartitionState(leader=replicas[0], leader_epoch=0, replicas=replicas, isr=replicas)
