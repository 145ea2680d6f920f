"""The APIs of transactions over a connection: the parts that no foreign client sends."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.bench.raw import RawConnection, nested, request_class
from moldau.testing import Cluster

ADD_PARTITIONS_TO_TXN = 24


@pytest.mark.parametrize("version", [4, 5])
def test_a_request_for_no_transaction_at_all_is_answered(version: int) -> None:
    """Apache Kafka 4.3 leaves it without an answer, and the connection without any for good."""
    with Cluster() as cluster, RawConnection(cluster.bootstrap_servers) as connection:
        answer = connection.ask(request_class(ADD_PARTITIONS_TO_TXN, version)(transactions=()))
        assert (answer.error_code, answer.results_by_transaction) == (0, ())


def test_a_producer_cannot_add_what_belongs_to_a_coordinator() -> None:
    with Cluster(topics={"orders": 1}) as cluster, RawConnection(cluster.bootstrap_servers) as connection:
        request = request_class(ADD_PARTITIONS_TO_TXN, 3)
        topic = nested(request, "v3_and_below_topics")
        answer = connection.ask(
            request(
                v3_and_below_transactional_id="billing",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=tuple(
                    topic(name=name, partitions=(0,)) for name in ("orders", "__transaction_state")
                ),
            )
        )
    errors = {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in answer.results_by_topic_v3_and_below
    }
    assert errors == {
        "orders": ErrorCode.operation_not_attempted,
        "__transaction_state": ErrorCode.topic_authorization_failed,
    }
