"""The throttles of `moldau cluster reassign` and `drain`, put on and taken away (see `throttles`).

They are settings of the cluster, and outlive whoever has set them: a command that ends before its move says how they
are taken away, and so does the next one that finds some left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import BROKER, TOPIC, ClusterClient, Moving, Refusal
from moldau.cli.errors import CliError
from moldau.cli.output import note
from moldau.cli.throttles import (
    LISTS,
    RATES,
    Copy,
    Standing,
    Throttles,
    added,
    all_removed,
    removed,
    text_of,
    throttles_of,
)

TAKE_AWAY = "`moldau cluster reassign --throttle none` takes it away"


def standing(client: ClusterClient, topics: Iterable[str] | None = None) -> Standing:
    """What is throttled now, in these topics or all; the rates of brokers that do not run are not known."""
    names = sorted({one.topic for one in client.partitions()} if topics is None else set(topics))
    lists = {
        topic: {name: value.split(",") for name, value in settings.items()}
        for topic, settings in client.topic_settings(names, LISTS).items()
    }
    rates = {}
    for broker in client.cluster().brokers:
        if not broker.is_fenced and (settings := client.broker_settings(broker, RATES)):
            rates[broker.id] = {name: int(value) for name, value in settings.items()}
    return Standing(lists, rates)


def under_way(moving: Mapping[TopicPartition, Moving]) -> dict[TopicPartition, Copy]:
    return {
        place: Copy(tuple(broker for broker in one.replicas if broker not in one.adding), one.adding)
        for place, one in moving.items()
        if one.adding
    }


def put_on(client: ClusterClient, copies: Mapping[TopicPartition, Copy], rate: int) -> Throttles:
    throttles = throttles_of(copies)
    # A replica may be on a broker that was unregistered.
    known = [broker.id for broker in client.cluster().brokers]
    throttles = throttles._replace(brokers=tuple(one for one in throttles.brokers if one in known))
    now = standing(client, throttles.lists)
    change(client, TOPIC, added(now, throttles))
    change(client, BROKER, {str(broker): dict.fromkeys(RATES, str(rate)) for broker in throttles.brokers})
    return throttles


def take_away(client: ClusterClient, throttles: Throttles) -> None:
    """Of moves that are over; brokers that still take part in others keep their rates."""
    change(client, TOPIC, removed(standing(client, throttles.lists), throttles))
    busy = throttles_of(under_way(client.moving())).brokers
    idle = [broker for broker in throttles.brokers if broker not in busy]
    change(client, BROKER, {str(broker): dict.fromkeys(RATES) for broker in idle})


def take_all_away(client: ClusterClient) -> Standing:
    """Every list, and the rates of all brokers; what there was."""
    found = standing(client)
    change(client, TOPIC, all_removed(found))
    change(client, BROKER, {str(broker): dict.fromkeys(RATES) for broker in found.rates})
    return found


def change(client: ClusterClient, kind: int, changes: Mapping[str, Mapping[str, str | None]]) -> None:
    refused = client.change_settings(kind, changes)
    refused = {name: one for name, one in refused.items() if not is_gone(one)}
    for name, one in sorted(refused.items()):
        what = "Topic" if kind == TOPIC else "Broker"
        raise CliError(f"{what} {name} cannot be throttled: {one.message.rstrip('.')}.")


def is_gone(outcome: Refusal) -> bool:
    """Its topic was deleted meanwhile."""
    return outcome.error is ErrorCode.unknown_topic_or_partition


def note_left_over(client: ClusterClient, topics: Iterable[str]) -> None:
    """Say what is throttled although nothing is being copied."""
    if not under_way(client.moving()) and (found := standing(client, topics)):
        note(f"Throttled, and nothing is being moved: {text_of(found)}; {TAKE_AWAY}.")
