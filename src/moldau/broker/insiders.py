"""Who may ask what only brokers ask of each other: the cluster's whole image, with the secrets in it, and what a broker
has been asked by somebody else.

Nobody may on any listener but the brokers' own, and there nobody who has proved to be somebody else than a broker:
where it has SASL, or clients share it and may show certificates, brokers are whoever this broker itself would be there,
and those of `super.users`. With an authorizer also those whom an ACL allows ClusterAction; that there is no ACL at all
is no proof. So that brokers can move from one listener to another, who this broker itself would be may ask on others
too, and with an authorizer whoever it allows that.

It leaves out a brokers' listener by which nobody proves anything: whoever reaches it can pass as a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from moldau.broker.connection import Connection
from moldau.broker.guard import Guard
from moldau.broker.seldom import Seldom
from moldau.config.authorization_keys import principals
from moldau.config.broker import BrokerConfig
from moldau.config.listener_settings import settings_of
from moldau.runtime.ports import Clock
from moldau.security.acls import CLUSTER_NAME, Acl, Operation, Resource

log = logging.getLogger(__name__)

PRINCIPAL_LETTERS_SAID_MAX = 200


class OwnNames(Protocol):
    """`broker.tls.BrokerTls`, as far as it knows who this broker is to others."""

    def own_principal(self, listener: str) -> str | None:
        """By its certificate there; None where it has none."""
        ...


class Insiders:
    def __init__(
        self, config: BrokerConfig, user: str | None, tls: OwnNames, guard: Guard | None, clock: Clock
    ) -> None:
        """`user`: by whose name this broker comes in where the brokers' listener has SASL."""
        self._config = config
        self._own = config.inter_broker_listener
        self._endpoints: Mapping[str, bool] = {one.name: one.is_sasl for one in config.listeners}
        """Whether it has SASL, by listener."""
        self._user = user
        self._tls = tls
        self._guard = guard
        self._super_users = frozenset(principals(config["super.users"]))
        self._seldom = Seldom(clock)

    def has(self, connection: Connection) -> bool:
        """Whether it may ask. What is refused is said at most every so often of one address."""
        if self._is_among_brokers(connection.listener_name) or self._is_a_broker(connection):
            return True
        host, listener = connection.client_host, connection.listener_name
        if self._seldom((host, listener)):
            who = connection.principal[:PRINCIPAL_LETTERS_SAID_MAX]
            log.warning(
                "%s (%a) has asked on the listener %s what only brokers ask, and is disconnected. A broker comes by "
                "the listener %s, as who this broker is there or one of super.users",
                *(host, who, listener, self._own.name),
            )
        return False

    def _is_among_brokers(self, listener: str) -> bool:
        """Whether whoever has come in by it counts as a broker."""
        if listener != self._own.name or self._own.is_sasl:
            return False
        if len(self._endpoints) > 1 or not self._own.is_tls:
            return True
        auth: str = settings_of(self._config, listener)["ssl.client.auth"]
        return auth == "none"

    def _is_a_broker(self, connection: Connection) -> bool:
        principal = connection.principal
        is_at_home = connection.listener_name == self._own.name
        if principal in self._super_users and (is_at_home or self._guard is not None):
            return True
        if self._endpoints.get(connection.listener_name, False):
            own = None if self._user is None else f"User:{self._user}"
        else:
            own = self._tls.own_principal(connection.listener_name)
        return principal == own or self._is_allowed_to_act(connection)

    def _is_allowed_to_act(self, connection: Connection) -> bool:
        if self._guard is None:
            return False
        decision = self._guard.authorizer.decide(
            connection.principal,
            connection.client_host,
            Operation.CLUSTER_ACTION,
            Resource.CLUSTER,
            CLUSTER_NAME,
        )
        return decision.is_allowed and isinstance(decision.rule, Acl)
