"""Client quotas as values: for whom one is, what it limits, how the store keeps it, and which of several holds. Pure.

An entity is a user, a client id, both, or an address; each by its name, or the default of all that have no quota of
their own (KIP-55, KIP-546, KIP-612). A quota is kept as its entity's settings are: `entity_key` is the name of the
record, the values are texts (`value_text`).

Of the quotas of one kind that fit a client, the most specific holds, in the order of LEVELS (Kafka's
ClientQuotaManager). What is used is counted by what the entity speaks of: all clients of a user share the user's quota,
and each client id has a default for client ids to itself. A client without an id counts as one with an empty one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
MUTATION = "controller_mutation_rate"
CONNECTION = "connection_creation_rate"

USER_KEYS: Mapping[str, str] = {PRODUCE: "LONG", FETCH: "LONG", REQUEST: "DOUBLE", MUTATION: "DOUBLE"}
"""What users and client ids may have a quota of, with its type in Kafka."""
IP_KEYS: Mapping[str, str] = {CONNECTION: "INT"}


class Absent(Enum):
    """An entity says nothing of this."""

    ABSENT = 0


ABSENT = Absent.ABSENT
Part = str | None | Absent
"""A name, the default, or nothing."""


class Level(NamedTuple):
    """How a quota names its clients."""

    user: Part
    client_id: Part


NAMED = "named"
LEVELS: tuple[Level, ...] = (
    Level(NAMED, NAMED),
    Level(NAMED, None),
    Level(NAMED, ABSENT),
    Level(None, NAMED),
    Level(None, None),
    Level(None, ABSENT),
    Level(ABSENT, NAMED),
    Level(ABSENT, None),
)
"""From the most specific on."""


class Found(NamedTuple):
    """The quota that holds for a client, and whose use of it is counted together: of a user's clients, of a client id
    whoever its user is, or of both."""

    limit: float
    user: str | None
    client_id: str | None
    is_named: bool
    """Whether the quota is for these by name, and not for all that have none of their own."""


class QuotaTable:
    """All quotas of one kind, as decisions look for them: eight look-ups, however many there are."""

    __slots__ = ("_levels", "_limits")

    def __init__(self) -> None:
        self._limits: dict[tuple[Part, Part], float] = {}
        self._levels: list[tuple[Level, int]] = []
        """Those that are used, with how many quotas are of it."""

    def __len__(self) -> int:
        return len(self._limits)

    def put(self, user: Part, client_id: Part, limit: float | None) -> None:
        """The quota of this entity is this now; None: it has none any more."""
        place = user, client_id
        if limit is None:
            if self._limits.pop(place, None) is not None:
                self._count(place, -1)
            return
        if place not in self._limits:
            self._count(place, 1)
        self._limits[place] = limit

    def _count(self, place: tuple[Part, Part], change: int) -> None:
        level = Level(*(NAMED if isinstance(part, str) else part for part in place))
        counts = dict(self._levels)
        counts[level] = counts.get(level, 0) + change
        self._levels = [(one, counts[one]) for one in LEVELS if counts.get(one)]

    def find(self, user: str, client_id: str) -> Found | None:
        for (user_level, client_level), _ in self._levels:
            place = (
                user if user_level is NAMED else user_level,
                client_id if client_level is NAMED else client_level,
            )
            limit = self._limits.get(place)
            if limit is not None:
                return Found(
                    limit,
                    None if user_level is ABSENT else user,
                    None if client_level is ABSENT else client_id,
                    user_level is not None and client_level is not None,
                )
        return None


def entity_key(entity: Mapping[str, str | None]) -> str:
    """The name of an entity's record."""
    return json.dumps(dict(sorted(entity.items())), separators=(",", ":"), ensure_ascii=False)


def entity_of(key: str) -> dict[str, str | None]:
    entity: dict[str, str | None] = json.loads(key)
    return entity


def value_text(value: float) -> str:
    return repr(value)


def value_of(text: str) -> float:
    return float(text)


def shown_entity(entity: Mapping[str, str | None]) -> str:
    """For people: `user alice, client-id <default>`."""
    parts = (f"{type_} {'<default>' if name is None else name}" for type_, name in entity.items())
    return ", ".join(parts)
