"""The workloads: what clients do in a simulated run, what is checked of it, and which planted bugs that finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.sim.planting import Plants
from moldau.sim.stage import Outcome
from moldau.sim.workloads.cluster import workload as cluster
from moldau.sim.workloads.cluster.lifecycle_plants import CLUSTER_PLANTS
from moldau.sim.workloads.consumer_groups import workload as consumer_groups
from moldau.sim.workloads.consumer_groups.plants import CONSUMER_GROUP_PLANTS
from moldau.sim.workloads.groups import workload as groups
from moldau.sim.workloads.groups.plants import GROUP_PLANTS
from moldau.sim.workloads.log import workload as log
from moldau.sim.workloads.log.plants import LOG_PLANTS
from moldau.sim.workloads.transactions import workload as transactions
from moldau.sim.workloads.transactions.plants import TRANSACTION_PLANTS


class Workload(NamedTuple):
    simulate: Callable[[int | str, float], Outcome]
    seconds: float
    """Virtual ones, of trouble."""
    plants: Plants


WORKLOADS = {
    "log": Workload(log.simulate, log.SECONDS, LOG_PLANTS),
    "groups": Workload(groups.simulate_groups, groups.SECONDS, GROUP_PLANTS),
    "consumer-groups": Workload(
        consumer_groups.simulate_consumer_groups, consumer_groups.SECONDS, CONSUMER_GROUP_PLANTS
    ),
    "cluster": Workload(cluster.simulate_cluster, cluster.SECONDS, CLUSTER_PLANTS),
    "transactions": Workload(transactions.simulate_transactions, transactions.SECONDS, TRANSACTION_PLANTS),
}
