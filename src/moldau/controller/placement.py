"""Which brokers hold a new partition: leaders in turn, followers over racks; and checks of a manual choice. Pure.

As Kafka's StripedReplicaPlacer: no rack has two replicas while another has none, brokers that shut down get nothing,
and fenced ones only what nobody else in their rack can take, never the lead. Where Kafka begins with a broker by
chance, a count goes on from topic to topic (`first`), so that many topics of one partition are as even as one topic of
many. What brokers hold already is not looked at: a reassignment evens that out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.controller.slices import PARTITIONS_PER_SLICE, Slices, whole
from moldau.metadata.records import BrokerInfo, PartitionState


def place(
    brokers: Iterable[BrokerInfo], partitions: int, replication_factor: int, first: int
) -> list[tuple[int, ...]]:
    """The replicas of so many new partitions, the leader first; `first` counts those that were placed before."""
    return whole(placing(brokers, partitions, replication_factor, first))


def placing(
    brokers: Iterable[BrokerInfo], partitions: int, replication_factor: int, first: int
) -> Slices[list[tuple[int, ...]]]:
    usable = [broker for broker in brokers if broker.is_fenced or not broker.is_shutting_down]
    racks = _Racks(usable)
    if not racks.leaders:
        raise _refused(replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(usable):
        raise _refused(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    placed: list[tuple[int, ...]] = []
    for number in range(first, first + partitions):
        placed.append(racks.place(number, replication_factor))
        if len(placed) % PARTITIONS_PER_SLICE == 0:
            yield
    return placed


def _refused(replication_factor: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_replication_factor,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}",
    )


class _Racks:
    def __init__(self, brokers: Iterable[BrokerInfo]) -> None:
        racks: dict[str, tuple[list[int], list[int]]] = {}
        for broker in sorted(brokers, key=lambda broker: broker.id):
            unfenced, fenced = racks.setdefault(broker.rack or "", ([], []))
            (fenced if broker.is_fenced else unfenced).append(broker.id)
        self._racks = [racks[name] for name in sorted(racks)]
        # One of each rack, then the second of each: neighbours are in different racks as far as that goes.
        self.leaders: list[tuple[int, int]] = [
            (rack, unfenced[index])
            for index in range(max((len(unfenced) for unfenced, _ in self._racks), default=0))
            for rack, (unfenced, _) in enumerate(self._racks)
            if index < len(unfenced)
        ]
        # Twice those who follow a leader, to cut the ones of a round from; where there are no racks to look at.
        self._followers: list[list[int]] = []
        if len(self._racks) == 1 and not self._racks[0][1]:
            ids = self._racks[0][0]
            self._followers = [(ids[at + 1 :] + ids[:at]) * 2 for at in range(len(ids))]

    def place(self, number: int, replication_factor: int) -> tuple[int, ...]:
        rounds, turn = divmod(number, len(self.leaders))
        rack, leader = self.leaders[turn]
        if self._followers:
            at = rounds % max(1, len(self.leaders) - 1)
            return (leader, *self._followers[turn][at : at + replication_factor - 1])
        replicas = [leader]
        lines = [self._line(index, number, rounds, leader) for index in range(len(self._racks))]
        for index in self._order(rack, rounds):
            if len(replicas) == replication_factor:
                break
            replica = next(lines[index], None)
            if replica is not None:
                replicas.append(replica)
        return tuple(replicas)

    def _order(self, rack: int, rounds: int) -> Iterator[int]:
        """The racks of the followers: the others first, beginning with another in each round; then all, again and
        again.
        """
        count = len(self._racks)
        others = [(rack + 1 + (rounds + step) % (count - 1)) % count for step in range(count - 1)]
        yield from others
        while True:
            yield rack
            yield from others

    def _line(self, index: int, number: int, rounds: int, leader: int) -> Iterator[int]:
        """The brokers of a rack, in the order in which they get this partition: fenced ones last, the leader never.

        Followers step on by one more with each round of leaders: what one broker leads is not all on one other.
        """
        for ids in self._racks[index]:
            if leader in ids:
                at = ids.index(leader)
                rest = ids[at + 1 :] + ids[:at]
                yield from _rotated(rest, rounds)
            else:
                yield from _rotated(ids, number // len(self._racks))


def _rotated(ids: list[int], steps: int) -> list[int]:
    at = steps % len(ids) if ids else 0
    return ids[at:] + ids[:at]


def check_manual_assignment(brokers: Collection[int], replicas: Sequence[int]) -> None:
    """`brokers` are all that are registered: a replica may be given to one that is down. Of several mistakes the one
    with the lowest id is told, as in Kafka; in linear time, however many ids there are.
    """

    def refuse(reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {reason}"
        )

    if not replicas:
        raise refuse("an empty replica list.")
    seen: set[int] = set()
    wrong: set[int] = set()
    for broker in replicas:
        (wrong if broker in seen or broker not in brokers else seen).add(broker)
    if wrong:
        lowest = min(wrong)
        if lowest in brokers:
            raise refuse(f"the broker {lowest} more than once.")
        raise refuse(f"broker {lowest}, but no such broker is registered.")


def new_partition(replicas: tuple[int, ...], active: Collection[int]) -> PartitionState | None:
    """Led by the first that is active, and in sync where they are; None where none is."""
    isr = tuple(replica for replica in replicas if replica in active)
    return PartitionState(leader=isr[0], leader_epoch=0, replicas=replicas, isr=isr) if isr else None
