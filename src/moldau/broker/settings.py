"""What the parts of a broker are given of its configuration, and of the mark that its last clean stop has left."""

from __future__ import annotations

import json

from moldau.config.broker import BrokerConfig
from moldau.replication.fetcher import FetcherSettings
from moldau.replication.quota import QuotaWindow


def quota_window(config: BrokerConfig) -> QuotaWindow:
    return QuotaWindow(
        config["replication.quota.window.num"], config["replication.quota.window.size.seconds"]
    )


def fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        max_wait_ms=config["replica.fetch.wait.max.ms"],
        min_bytes=config["replica.fetch.min.bytes"],
        max_bytes=config["replica.fetch.response.max.bytes"],
        partition_max_bytes=config["replica.fetch.max.bytes"],
        backoff_max_s=config["replica.fetch.backoff.ms"] / 1000,
        timeout_s=config["replica.socket.timeout.ms"] / 1000,
    )


def epoch_in(mark: bytes) -> int:
    """The broker epoch in the mark of a clean stop; 0 where it says none, as Kafka's older brokers leave it."""
    try:
        return int(json.loads(mark)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return 0
