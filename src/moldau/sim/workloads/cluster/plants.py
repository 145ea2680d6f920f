"""Bugs on purpose in replication, controller and coordinators: each must be found by the workload of clusters."""

from __future__ import annotations

from moldau.sim.planting import Plants

plant = CLUSTER_PLANTS = Plants()
