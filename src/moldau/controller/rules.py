"""What a topic's settings say to those who decide on its partitions: the topic's own, else the broker's. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from moldau.config.broker import BrokerConfig
from moldau.config.table import TOPIC_KEYS
from moldau.controller.partition_change import Election, MayLead
from moldau.metadata.image import ClusterImage, Topic

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class Rules:
    def __init__(self, config: BrokerConfig) -> None:
        self._min_isr: int = config[MIN_ISR]
        self._unclean: bool = config[UNCLEAN]

    def min_isr(self, configs: Mapping[str, str]) -> int:
        own = configs.get(MIN_ISR)
        return self._min_isr if own is None else int(TOPIC_KEYS[MIN_ISR].parse(own))

    def election(self, topic: Topic) -> Election:
        """How a partition without a leader gets one when nobody asks for it."""
        own = topic.configs.get(UNCLEAN)
        unclean = self._unclean if own is None else TOPIC_KEYS[UNCLEAN].parse(own)
        return Election.UNCLEAN if unclean else Election.ONLINE


def may_lead(
    image: ClusterImage, leaving: Collection[int] = (), coming: Collection[int] = ()
) -> Callable[[Collection[int]], MayLead]:
    """Who can lead a partition, by the replicas of it whose disk has failed: active brokers, but for those."""
    active = {broker.id for broker in image.brokers.values() if broker.is_active}
    able = frozenset((active | set(coming)) - set(leaving))

    def of(offline: Collection[int]) -> MayLead:
        return (able.difference(offline) if offline else able).__contains__

    return of
