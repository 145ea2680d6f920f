"""Who may alter or describe the settings of a resource: topics and groups by their names, all others as the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from moldau.broker.guard import Asker, Guarded, may
from moldau.metadata.records import ResourceType
from moldau.security.acls import CLUSTER_NAME
from moldau.security.rights import Right

Rights = Mapping[int, Right]
"""By the type of resource."""

K = TypeVar("K")


def rights_by_type(cluster: Right, topic: Right, group: Right) -> Rights:
    return {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.BROKER: cluster,
        ResourceType.BROKER_LOGGER: cluster,
        ResourceType.CLIENT_METRICS: cluster,
    }


def denial(broker: Guarded, asker: Asker, rights: Rights, type_: int, name: str) -> Right | None:
    """What is missing; None where nothing is, or nobody knows such resources."""
    asked = rights.get(type_)
    if asked is None:
        return None
    is_named = type_ in (ResourceType.TOPIC, ResourceType.GROUP)
    return None if may(broker, asker, asked, name if is_named else CLUSTER_NAME) else asked
