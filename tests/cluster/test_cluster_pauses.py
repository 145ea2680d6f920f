"""Brokers that hang: stopped with SIGSTOP for longer than their session, and let go on with SIGCONT (R5-R8, promise 6).

The others go on without them. One that wakes up has led, or been the controller, in an epoch that is over: nothing that
it then does counts, it joins again with a new broker epoch, and comes into line with the new leaders.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.raw import RawConnection, decode_answer, frame, produce_request
from cluster.several import ENGINES, PATIENCE_S, SESSION_MS, Cluster, NewCluster, clusters, store_of
from cluster.several_work import Writers
from cluster.support import one_record_batch, wait_until
from cluster.writers import Acknowledged

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC = "survivors"
PARTITIONS = 3
PAUSE_S = 2 * SESSION_MS / 1000
USUAL_SEED = 11


@pytest.fixture(params=ENGINES)
def new_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewCluster]:
    with store_of(request.param, tmp_path) as store, clusters(tmp_path) as make:
        yield lambda number, **settings: make(number, store, **settings)


class Sleeper:
    """A client of a broker that is stopped: its write waits there, and is looked at when the broker goes on."""

    def __init__(self, cluster: Cluster, broker_id: int, partition: int) -> None:
        self._partition = partition
        self._connection = RawConnection(cluster.brokers[broker_id].bootstrap_servers, timeout_s=PATIENCE_S)
        self._request = produce_request(TOPIC, partition, one_record_batch(b"to the sleeper"), acks=-1)

    def send(self) -> None:
        self._connection.send(frame(self._request))

    def acknowledged(self) -> list[Acknowledged]:
        """What it was promised; most likely nothing."""
        with self._connection as connection:
            try:
                answer = decode_answer(self._request, connection.receive())
            except ConnectionError:
                return []
        (outcome,) = answer.responses[0].partition_responses
        if outcome.error_code:
            return []
        return [Acknowledged(self._partition, b"to the sleeper", outcome.base_offset)]


def test_a_leader_that_hangs_is_replaced_and_what_it_does_when_it_wakes_up_counts_for_nothing(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    cluster = new_cluster(3)
    cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
    writers = Writers(cluster, TOPIC, PARTITIONS, seed(USUAL_SEED))
    writers.wait_for_more()
    controller = cluster.controller()
    index, leader = next(
        (index, view.leader) for index, view in enumerate(cluster.views(TOPIC)) if view.leader != controller
    )
    epoch = cluster.views(TOPIC)[index].epoch
    sleeper = Sleeper(cluster, leader, index)
    cluster.pause(leader)
    sleeper.send()
    wait_until(lambda: cluster.leader(TOPIC, index) != leader, PATIENCE_S, "another leader")
    writers.wait_for_more()
    time.sleep(PAUSE_S)
    promised = writers.acknowledged()
    cluster.resume(leader)
    more = sleeper.acknowledged()
    cluster.wait_in_sync()
    writers.wait_for_more()
    assert cluster.views(TOPIC)[index].epoch > epoch
    assert "has lost its session" in cluster.brokers[leader].said()
    assert len(writers.acknowledged()) > len(promised)
    writers.end_and_check(*more)


def test_a_controller_that_hangs_is_replaced_and_changes_nothing_when_it_wakes_up(
    new_cluster: NewCluster, seed: Callable[[int], int]
) -> None:
    cluster = new_cluster(3)
    cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas=2)
    writers = Writers(cluster, TOPIC, PARTITIONS, seed(USUAL_SEED))
    writers.wait_for_more()
    first = cluster.controller()
    cluster.pause(first)
    wait_until(lambda: cluster.controller() != first, PATIENCE_S, "another controller")
    writers.wait_for_more()
    cluster.create("made-meanwhile", 2, 2)
    cluster.resume(first)
    cluster.wait_in_sync()
    assert cluster.controller() != first
    assert len(cluster.views("made-meanwhile", first)) == 2, "it has taken over what was decided without it"
    cluster.create("made-afterwards", 2, 3)
    writers.wait_for_more()
    writers.end_and_check()
