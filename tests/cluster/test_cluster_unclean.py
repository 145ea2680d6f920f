"""An unclean election: someone who lacks acknowledged records is made the leader, since nobody else is left.

What only the lost broker had is gone, as was said; and when it comes back it cuts off what the others do not have, so
that all replicas are the same again (Kafka's truncation_test; KIP-101, KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.several import PATIENCE_S, Cluster, clusters
from cluster.several_checks import Stored, check_replicas
from cluster.several_clients import LeaderWriter
from cluster.support import wait_until
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import UNCLEAN, ClusterClient
from moldau.cli.options import Target

pytestmark = pytest.mark.slow

TOPIC = "survivors"
PLACE = TopicPartition(TOPIC, 0)
A_FEW = 50
USUAL_SEED = 17


def written(cluster: Cluster, name: str, seed: int) -> LeaderWriter:
    """One who has written a few records, and ended."""
    writer = LeaderWriter(name, cluster, TOPIC, 0, seed)
    writer.start()
    wait_until(lambda: len(writer.acknowledged()) > A_FEW, PATIENCE_S, f"writes {name}")
    writer.end(PATIENCE_S)
    return writer


def test_who_comes_back_after_an_unclean_election_cuts_off_what_the_others_do_not_have(
    tmp_path: Path, seed: Callable[[int], int]
) -> None:
    begin = seed(USUAL_SEED)
    with clusters(tmp_path) as make:
        cluster = make(3)
        cluster.create(TOPIC, 1, 2, min_insync_replicas=1)
        (view,) = cluster.views(TOPIC)
        first, second = view.leader, next(id_ for id_ in view.replicas if id_ != view.leader)
        both = written(cluster, "both", begin)
        cluster.kill(second)
        alone = written(cluster, "alone", begin + 1)
        cluster.kill(first)
        cluster.start(second)
        wait_until(lambda: cluster.views(TOPIC)[0].leader == -1, PATIENCE_S, "no leader")
        with ClusterClient(Target(cluster.bootstrap)) as client:
            assert client.elect(UNCLEAN, [PLACE])[PLACE].error is ErrorCode.none
        after = written(cluster, "after", begin + 2)
        cluster.start(first)
        cluster.wait_in_sync()
        stored = Stored(cluster, TOPIC, 1)
        stored.read([*both.acknowledged(), *after.acknowledged()])
        kept = set(stored.values(0))
        assert not any(ack.value in kept for ack in alone.acknowledged())
        assert f"{TOPIC}-0 is cut off" in cluster.brokers[first].said()
        cluster.stop()
        assert check_replicas(cluster, [TOPIC]) > 0
