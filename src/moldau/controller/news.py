"""What the log tells of topics and configs that are created, changed and deleted: a line each, at info.

It is told where it is decided, when it is durable: by the cluster's controller. Whoever changes thousands in a moment
does not fill the log: the first ones have their lines, the rest is a number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence

from moldau.base.limits import NEWS_LINES_MAX, NEWS_WINDOW_S
from moldau.config.table import TOPIC_KEYS, broker_key
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    ConfigChanged,
    ConfigResource,
    PartitionsAdded,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)
from moldau.runtime.ports import Tasks
from moldau.security.acls import Acl, ResourcePattern, entry_of, pattern_of
from moldau.security.quotas import entity_of, shown_entity
from moldau.security.sasl import DECOYS

log = logging.getLogger(__name__)

SHOWN_PAIRS_MAX = 10
SHOWN_LETTERS_MAX = 100
NEWS = (TopicCreated, TopicDeleted, PartitionsAdded, ConfigChanged)
RESOURCES = {ResourceType.GROUP: "group", ResourceType.CLIENT_METRICS: "client metrics"}


class News:
    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._lines = 0
        """Of the current window, which begins with its first line."""
        self._untold = 0

    def prepare(self, image: ClusterImage, records: Iterable[Record]) -> dict[int, str]:
        """The lines of records that are to be written, by the records' ids; `image` is as it was before."""
        lines: dict[int, str] = {}
        for record in records:
            if self._lines + len(lines) == NEWS_LINES_MAX:
                break
            if isinstance(record, NEWS) and (line := _line(image, record)):
                lines[id(record)] = line
        return lines

    def tell(self, lines: Mapping[int, str], written: Sequence[Record]) -> None:
        """Records are durable: these lines say what they are, as far as there is one."""
        told = [lines[id(record)] for record in written if id(record) in lines]
        for line in told:
            log.info(line)
        untold = 0
        if self._lines + len(lines) == NEWS_LINES_MAX:
            untold = sum(isinstance(record, NEWS) for record in written) - len(told)
        if (told or untold) and not self._lines:
            self._tasks.call_later(NEWS_WINDOW_S, self._end_window)
        self._lines += len(told)
        self._untold += untold

    def _end_window(self) -> None:
        if self._untold:
            log.info("%d more changes of topics and configs are not told one by one", self._untold)
        self._lines = self._untold = 0


def _line(image: ClusterImage, record: Record) -> str | None:
    match record:
        case TopicCreated(name, _, partitions, configs):
            line = f"topic {name} is created: partitions={len(partitions)}"
            line += f", replication.factor={len(partitions[0].replicas)}"
            return line + "".join(f", {pair}" for pair in _pairs({}, configs))
        case TopicDeleted(name):
            return f"topic {name} is deleted"
        case PartitionsAdded(name, _, partitions):
            before = len(image.topics[name].partitions)
            return f"topic {name} has more partitions: {before + len(partitions)}, and had {before}"
        case ConfigChanged(resource, configs) if resource.type is ResourceType.ACLS:
            return _acl_line(resource.name, image.configs(resource), configs)
        case ConfigChanged(resource, configs) if resource.type is ResourceType.USER:
            return _user_line(resource.name, image.configs(resource), configs)
        case ConfigChanged(resource, configs) if resource.type is ResourceType.CLIENT_QUOTA:
            return _quota_line(resource.name, image.configs(resource), configs)
        case ConfigChanged(resource, configs):
            pairs = _pairs(image.configs(resource), configs)
            return f"config of {_name(resource)} is changed: {', '.join(pairs)}" if pairs else None
    return None


def _quota_line(key: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changed = [name for name in sorted({**before, **after}) if before.get(name) != after.get(name)]
    shown = (f"{name}={after[name]}" if name in after else f"{name} is not set any more" for name in changed)
    return f"quotas of {_shown(shown_entity(entity_of(key)))} are changed: {', '.join(shown)}"


def _acl_line(key: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    pattern = pattern_of(key)
    changes = [("added", text) for text in after if text not in before]
    changes += [("removed", text) for text in before if text not in after]
    shown = [f"{what} {_acl(pattern, text)}" for what, text in changes[:SHOWN_PAIRS_MAX]]
    more = len(changes) - len(shown)
    return f"ACLs are changed: {'; '.join(shown)}" + (f"; and {more} more" if more else "")


def _acl(pattern: ResourcePattern, text: str) -> str:
    line = str(Acl(*pattern, entry_of(text)))
    return line if line.isprintable() else json.dumps(line)


def _user_line(user: str, before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """Nothing of what is kept of a password."""
    if user == DECOYS:
        return None
    changes = [f"{name} is set" for name in after if after[name] != before.get(name)]
    changes += [f"{name} is removed" for name in before if name not in after]
    return f"credentials of user {_shown(user)} are changed: {', '.join(changes)}" if changes else None


def _name(resource: ConfigResource) -> str:
    if resource.type is ResourceType.BROKER:
        return f"broker {resource.name}" if resource.name else "all brokers"
    return f"{RESOURCES.get(resource.type, 'topic')} {_shown(resource.name)}"


def _pairs(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What differs, as `key=value`."""
    changed = [name for name in sorted({**before, **after}) if before.get(name) != after.get(name)]
    pairs = [_pair(name, before.get(name), after.get(name)) for name in changed[:SHOWN_PAIRS_MAX]]
    more = len(changed) - len(pairs)
    return [*pairs, f"and {more} more"] if more else pairs


def _pair(name: str, before: str | None, after: str | None) -> str:
    key = broker_key(name) or TOPIC_KEYS.get(name)
    if after is None:
        return f"{_shown(name)} is not set any more"
    if key is None or key.sensitive:  # what nobody knows may be a password, too
        return f"{_shown(name)} (hidden)"
    was = "" if before is None else f" (was {_shown(before)})"
    return f"{_shown(name)}={_shown(after)}{was}"


def _shown(text: str) -> str:
    """On one line, and not too long."""
    short = text if len(text) <= SHOWN_LETTERS_MAX else f"{text[:SHOWN_LETTERS_MAX]}..."
    return short if short.isprintable() else json.dumps(short)
