"""What the admin handlers use of the broker and of the request's context; `node.Broker` and
`dispatch.Context` have it.

The handlers of the data path use more and say so themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Protocol

from moldau.config.broker import BrokerConfig
from moldau.controller.controller import Controller
from moldau.metadata.image import ClusterImage
from moldau.runtime.ports import Address, Runtime


class AdminBroker(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def controller(self) -> Controller: ...

    @property
    def config(self) -> BrokerConfig:
        """With the dynamic settings of now: made anew (`with_dynamic`) when they change."""
        ...

    @property
    def partitions(self) -> Mapping[Any, Any]:
        """TopicPartition -> replication.Partition, those that this broker holds."""
        ...

    @property
    def offline(self) -> Set[Any]:
        """TopicPartition: those whose disk has failed."""
        ...

    @property
    def log_manager(self) -> Any:
        """log.LogManager, for its folders."""
        ...

    @property
    def runtime(self) -> Runtime: ...


class AdminContext(Protocol):
    @property
    def version(self) -> int: ...

    @property
    def listener_name(self) -> str: ...

    @property
    def local_address(self) -> Address:
        """The address that the client connected to."""
        ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def principal(self) -> str: ...
