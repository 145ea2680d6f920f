"""A broker that is stopped and has handed over what it led: it sends its clients to the others before it closes."""

from __future__ import annotations

import threading
import time

import pytest

from bench.raw import RawConnection, api_versions_request, produce_request
from cluster.support import one_record_batch
from moldau.base.errors import ErrorCode
from moldau.broker.node import FAREWELL_S

from .brokers import Brokers

TOPIC = "data"


def error_of_produce(connection: RawConnection) -> int:
    answer = connection.ask(produce_request(TOPIC, 0, one_record_batch(b"value")))
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_client_that_asks_in_the_end_is_told_that_another_leads() -> None:
    with Brokers() as brokers:
        brokers.create(TOPIC, 2)
        brokers.wait_for_in_sync(TOPIC)
        (listener,) = brokers.running[2].listeners.values()
        address = f"127.0.0.1:{listener.address[1]}"
        with RawConnection(address) as early:
            early.ask(api_versions_request())  # it says who it is, as clients do
            assert error_of_produce(early) == 0
            stopping = threading.Thread(target=brokers.stop, args=(2,))
            stopping.start()
            brokers.wait_for(lambda: 2 not in brokers.running[1].image.brokers, "the others to know it")
            with RawConnection(address) as late:
                for connection in (early, late):
                    assert error_of_produce(connection) == ErrorCode.not_leader_or_follower
            stopping.join()
            with pytest.raises(OSError):
                error_of_produce(early)


def test_a_broker_without_clients_ends_at_once() -> None:
    with Brokers() as brokers:
        brokers.create(TOPIC, 2)
        brokers.wait_for_in_sync(TOPIC)
        begun_s = time.monotonic()
        brokers.stop(2)
        assert time.monotonic() - begun_s < FAREWELL_S
