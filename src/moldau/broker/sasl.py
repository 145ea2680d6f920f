"""SASL, where a broker's listeners have it. What it needs is imported then alone: most brokers start without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.server import Server
from moldau.config.broker import BrokerConfig

if TYPE_CHECKING:
    from moldau.broker.authentication import Authentication, Dispatch, GuardedBroker
    from moldau.security.sasl.client import Login


def authentication_of(
    broker: GuardedBroker, config: BrokerConfig, dispatch: Dispatch, server: Server
) -> Authentication | None:
    """From now on listeners with SASL serve nobody who has not said who it is."""
    if not config.sasl:
        return None
    from moldau.broker.authentication import Authentication

    found = Authentication(broker, dispatch, config.sasl, frame_bytes_max=server.frame_bytes_max)
    server.welcome, server.farewell, server.end_strangers = found.welcome, found.farewell, found.end_strangers
    return found


def no_web(url: str, _seconds_max: float, _bytes_max: int) -> bytes:
    raise ValueError(f"{url} cannot be fetched here")


def login_of(config: BrokerConfig) -> Login | None:
    """Who this broker is to the others, where their listener has SASL."""
    if not config.inter_broker_listener.is_sasl:
        return None
    from moldau.config.sasl import broker_login
    from moldau.security.sasl.client import Login

    who = broker_login(config)
    return Login(who.mechanism, who.user, who.password)
