"""The APIs of transactions over a connection: the parts that no foreign client sends."""

from __future__ import annotations

import pytest

from moldau.bench.raw import RawConnection, request_class
from moldau.testing import Cluster

ADD_PARTITIONS_TO_TXN = 24


@pytest.mark.parametrize("version", [4, 5])
def test_a_request_for_no_transaction_at_all_is_answered(version: int) -> None:
    """Apache Kafka 4.3 leaves it without an answer, and the connection without any for good."""
    with Cluster() as cluster, RawConnection(cluster.bootstrap_servers) as connection:
        answer = connection.ask(request_class(ADD_PARTITIONS_TO_TXN, version)(transactions=()))
        assert (answer.error_code, answer.results_by_transaction) == (0, ())
