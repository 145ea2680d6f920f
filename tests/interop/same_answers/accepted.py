"""The differences from Apache Kafka that are accepted, each with its reason. This table may only shrink.

`where` is matched against `API vVERSION, case: path`, with `*` for anything; an entry that no longer matches any
difference fails the test, so that what has been mended leaves the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Accepted:
    where: str
    reason: str

    def covers(self, place: str) -> bool:
        return fnmatchcase(place, self.where.replace("[", "[[]"))


ACCEPTED: tuple[Accepted, ...] = ()
