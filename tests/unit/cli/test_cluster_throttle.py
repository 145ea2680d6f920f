"""Throttles put on and taken away, on a cluster that only remembers settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import TOPIC, BrokerView, ClusterView, Moving, Refusal
from moldau.cli.cluster_throttle import note_left_over, put_on, standing, take_all_away, take_away
from moldau.cli.errors import CliError
from moldau.cli.partition_health import PartitionView
from moldau.cli.throttles import FOLLOWERS, LEADERS, RATES, Copy

FIRST, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
COPIES = {FIRST: Copy((1, 9), (2,))}
"""Of its replicas, one is on a broker that nobody knows any more."""


class Settings:
    """As much of a client as is used."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {"orders": {}, "other": {}}
        self.brokers: dict[str, dict[str, str]] = {"1": {}, "2": {}, "3": {}}
        self.under_way: dict[TopicPartition, Moving] = {}
        self.refusal: Refusal | None = None

    def cluster(self) -> ClusterView:
        brokers = (BrokerView(int(name), "host", 9000, None, name == "3") for name in self.brokers)
        return ClusterView("id", 1, tuple(brokers))

    def partitions(self) -> list[PartitionView]:
        return [PartitionView(name, 0, 1, (1,), (1,), 1) for name in self.topics]

    def moving(self) -> dict[TopicPartition, Moving]:
        return self.under_way

    def topic_settings(self, topics: Iterable[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        return {name: dict(self.topics[name]) for name in topics if self.topics[name]}

    def broker_settings(self, broker: BrokerView, keys: Sequence[str]) -> dict[str, str]:
        assert not broker.is_fenced, "it would not answer"
        return self.brokers[str(broker.id)]

    def change_settings(
        self, kind: int, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, Refusal]:
        if self.refusal is not None:
            return dict.fromkeys(changes, self.refusal)
        kept = self.topics if kind == TOPIC else self.brokers
        for name, settings in changes.items():
            for key, value in settings.items():
                if value is None:
                    kept[name].pop(key, None)
                else:
                    kept[name][key] = value
        return {}


def test_a_throttle_goes_as_it_came() -> None:
    client = Settings()
    throttles = put_on(client, COPIES, 1000)  # type: ignore[arg-type]
    assert client.topics == {"orders": {LEADERS: "0:1,0:9", FOLLOWERS: "0:2"}, "other": {}}
    rates = dict.fromkeys(RATES, "1000")
    assert client.brokers == {"1": rates, "2": rates, "3": {}}, "of those that are known"
    assert standing(client).rates == {n: dict.fromkeys(RATES, 1000) for n in (1, 2)}  # type: ignore[arg-type]
    take_away(client, throttles)  # type: ignore[arg-type]
    assert not any(client.topics.values()) and not any(client.brokers.values())


def test_brokers_that_take_part_in_another_move_keep_their_rates() -> None:
    client = Settings()
    throttles = put_on(client, COPIES, 1000)  # type: ignore[arg-type]
    client.under_way = {OTHER: Moving((3, 1), (1,), (3,))}
    take_away(client, throttles)  # type: ignore[arg-type]
    assert client.brokers == {"1": dict.fromkeys(RATES, "1000"), "2": {}, "3": {}}


def test_what_is_left_over_is_said_and_taken_away(capsys: pytest.CaptureFixture[str]) -> None:
    client = Settings()
    put_on(client, COPIES, 1024)  # type: ignore[arg-type]
    client.under_way = {FIRST: Moving((2, 1), (2,), (1,))}
    note_left_over(client, client.topics)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
    client.under_way = {}
    note_left_over(client, client.topics)  # type: ignore[arg-type]
    said = capsys.readouterr().err.replace("\n", " ")
    assert "brokers 1, 2 at 1.0 KiB/s, replicas of orders; `moldau cluster reassign --throttle none`" in said
    take_all_away(client)  # type: ignore[arg-type]
    assert not standing(client)  # type: ignore[arg-type]


def test_a_topic_that_was_deleted_meanwhile_is_no_error_and_a_refusal_is() -> None:
    client = Settings()
    throttles = put_on(client, COPIES, 1000)  # type: ignore[arg-type]
    client.refusal = Refusal(ErrorCode.unknown_topic_or_partition, "gone")
    take_away(client, throttles)  # type: ignore[arg-type]
    client.refusal = Refusal(ErrorCode.invalid_config, "too long.")
    with pytest.raises(CliError, match="Topic orders cannot be throttled: too long"):
        take_away(client, throttles)  # type: ignore[arg-type]
