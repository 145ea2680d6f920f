"""Writers that are at work while a test breaks things, and what must hold of their promises at the end."""

from __future__ import annotations

from cluster.several import PATIENCE_S, Cluster
from cluster.several_checks import Stored, check_order, check_replicas
from cluster.several_clients import LeaderWriter
from cluster.support import wait_until
from cluster.writers import Acknowledged, IdempotentWriter, Writer


class Writers:
    """An idempotent producer for all partitions, and a raw one for each; at work when constructed."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, seed: int) -> None:
        self._cluster = cluster
        everywhere = list(range(partitions))
        self.raw = [LeaderWriter(f"raw-{i}", cluster, topic, i, seed + i) for i in everywhere]
        self.all: list[Writer] = [
            IdempotentWriter("idempotent", cluster.bootstrap, topic, everywhere, seed),
            *self.raw,
        ]
        self.stored = Stored(cluster, topic, partitions)
        for writer in self.all:
            writer.start()

    def acknowledged(self) -> list[Acknowledged]:
        return [ack for writer in self.all for ack in writer.acknowledged()]

    def wait_for_more(self) -> None:
        before = [len(writer.acknowledged()) for writer in self.all]
        try:
            wait_until(
                lambda: all(len(w.acknowledged()) > count for w, count in zip(self.all, before, strict=True)),
                PATIENCE_S,
                "all writers to go on",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._cluster.words()}") from None

    def end_and_check(self, *more: Acknowledged) -> None:
        """All that was acknowledged is there, once and in order, and the replicas are the same."""
        for writer in self.all:
            writer.end(PATIENCE_S)
        self._cluster.wait_in_sync()
        self.stored.read([*self.acknowledged(), *more])
        self.stored.read_all_again()
        for writer in self.all:
            check_order(writer, self.stored)
        self._cluster.stop()
        assert check_replicas(self._cluster) > 0
