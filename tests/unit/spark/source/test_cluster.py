"""What the driver asks of the brokers."""

from __future__ import annotations

from confluent_kafka import KafkaError

from moldau.spark.source.cluster import Cluster
from moldau.spark.source.options import parse_options


def test_a_fresh_client_has_heard_nothing_of_what_an_earlier_one_was_refused() -> None:
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    cluster = Cluster(parse_options(settings, is_stream=True))
    cluster._heard = KafkaError(KafkaError._AUTHENTICATION)
    assert cluster._asked(lambda _admin: cluster._heard) is None
