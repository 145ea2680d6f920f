"""The cluster's client quotas on this broker: followed as the image changes, in force for requests and new connections.

The broker's `throttling` is there while a user or client id has a quota, its server's `rates` while an address, a
listener or the broker has one: where there are none, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Protocol

from moldau.broker.metrics.counters import Metrics
from moldau.broker.throttling import Throttling
from moldau.config.broker import BrokerConfig
from moldau.config.listener_settings import settings_of
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigChanged, Record, ResourceType
from moldau.runtime.ports import Runtime
from moldau.security.connection_rates import ConnectionRates
from moldau.security.quota_meters import QuotaMeters
from moldau.security.quota_rates import QuotaWindow

ENTITIES_PER_PAUSE = 500
UNLIMITED_RATE = (1 << 31) - 1
"""As Kafka says that a rate of connections has no limit."""
LISTENER_RATE = "max.connection.creation.rate"


class Throttled(Protocol):
    """The broker, as far as quotas are concerned."""

    throttling: Throttling | None

    @property
    def runtime(self) -> Runtime: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def image(self) -> ClusterImage: ...


class Paced(Protocol):
    """Its server."""

    rates: ConnectionRates | None


class ClientQuotas:
    def __init__(self, broker: Throttled, server: Paced) -> None:
        config = broker.config
        window = _window(config, "quota.window")
        self._broker = broker
        self._server = server
        self.meters = QuotaMeters(window, _window(config, "controller.quota.window"))
        self._throttling = Throttling(broker.runtime.clock, broker.metrics, self.meters, window)
        self._rates = ConnectionRates(window)

    def configure(self, config: BrokerConfig) -> None:
        """The settings of the broker and its listeners, as they are now."""
        of_listeners = {}
        for listener in config.listeners:
            of_listeners[listener.name] = _limit(settings_of(config, listener.name)[LISTENER_RATE])
        self._rates.set_limits(_limit(config[LISTENER_RATE]), of_listeners)
        self._put_in_force()

    def _put_in_force(self) -> None:
        self._broker.throttling = None if self.meters.is_empty else self._throttling
        self._server.rates = None if self._rates.limits_nothing else self._rates

    async def follow(self, records: Sequence[Record] | None) -> None:
        """The image has changed by these records, or all of it is new."""
        known: Mapping[str, Mapping[str, str]] = self._broker.image.configs_of(ResourceType.CLIENT_QUOTA)
        if records is None:
            self.meters.clear()
            changed = list(known)
        else:
            changed = [
                record.resource.name
                for record in records
                if isinstance(record, ConfigChanged) and record.resource.type is ResourceType.CLIENT_QUOTA
            ]
        for number, key in enumerate(changed, 1):
            if number % ENTITIES_PER_PAUSE == 0:
                await self._broker.runtime.tasks.sleep(0)
            self.meters.change(key, known.get(key, {}))
        if changed or records is None:
            self._rates.set_addresses(self.meters.connection_rates)
            self._put_in_force()


def _window(config: BrokerConfig, prefix: str) -> QuotaWindow:
    return QuotaWindow(config[f"{prefix}.num"], config[f"{prefix}.size.seconds"] * 1000)


def _limit(rate: int) -> float:
    return inf if rate == UNLIMITED_RATE else float(max(rate, 1))  # with 0 nobody would come in any more
