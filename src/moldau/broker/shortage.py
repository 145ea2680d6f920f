"""Too few brokers for the cluster's own topics, without which groups or transactions do not work.

`__consumer_offsets` and `__transaction_state` are made when a client first asks for a coordinator, with three replicas
each by Kafka's defaults. A cluster of fewer brokers cannot make them until others join, or its settings ask for less.
How many brokers are registered counts: one that is down gets its replicas, too, and one that shuts down does in a
moment, when it is down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from moldau.base.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig
    from moldau.metadata.image import ClusterImage

REPLICATION_FACTORS = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
}
_WHAT_NEEDS = {CONSUMER_OFFSETS: "consumer groups", TRANSACTION_STATE: "transactions"}


class Shortage(NamedTuple):
    """A topic that cannot be made."""

    topic: str
    replicas: int
    brokers: int

    @property
    def text(self) -> str:
        there = f"{self.brokers} broker{'' if self.brokers == 1 else 's'}"
        return (
            f"{_WHAT_NEEDS[self.topic]} do not work: {self.topic} is to have {self.replicas} replicas "
            f"({REPLICATION_FACTORS[self.topic]}), and the cluster has {there}"
        )

    @property
    def advice(self) -> str:
        return (
            f"Start more brokers, or set {REPLICATION_FACTORS[self.topic]}={max(1, self.brokers)} in the "
            "configuration of the brokers and start them again."
        )

    @property
    def sentence(self) -> str:
        return self.text[:1].upper() + self.text[1:]

    @property
    def sentences(self) -> str:
        return f"{self.sentence}. {self.advice}"


def shortage_of(topic: str, config: BrokerConfig, image: ClusterImage, starting: int = 0) -> Shortage | None:
    """`starting`: how many brokers start together with this one, and may not have joined yet."""
    if topic in image.topics:
        return None
    replicas: int = config[REPLICATION_FACTORS[topic]]
    brokers = max(len(image.registered), starting)
    return Shortage(topic, replicas, brokers) if brokers < replicas else None


def shortages(config: BrokerConfig, image: ClusterImage, starting: int = 0) -> list[Shortage]:
    found = (shortage_of(topic, config, image, starting) for topic in REPLICATION_FACTORS)
    return [one for one in found if one is not None]
