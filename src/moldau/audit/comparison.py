"""The comparison: by topic and window, what producers have counted, what the topic holds, what the lake holds.

Pure, and in one place: the pipeline's table and `moldau audit` both come from here.

    produced and topic    by the records' identities (timestamp, key, value)
    topic and lake        by their positions (partition, offset), since a table may keep other columns than the topic

A window is closed when its end and the allowed lateness have passed, everything until then has been counted, and the
lake has come as far as the topic's records of that window. What is missing then is a loss. Three things are no
verdict but a doubt: a producer that was killed has not published its last records, a topic was trimmed before its
first records were counted, and counts by windows of another length cannot be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from moldau.audit.messages import Counts, Life
from moldau.audit.tally import Tally, difference

SILENT_INTERVALS = 3
SILENT_MORE_MS = 20_000
"""A producer counts as killed when it was silent for so many of its intervals, and for so long besides."""


class By(Enum):
    """What a tally's identities are."""

    RECORDS = "records"
    POSITIONS = "positions"


class State(Enum):
    OPEN = "open"
    RIGHT = "right"
    WRONG = "wrong"
    UNSURE = "unsure"

    @property
    def is_closed(self) -> bool:
        return self is not State.OPEN


@dataclass(frozen=True, slots=True)
class Part:
    """What one task has counted in a partition and window of a topic, or of the tables that keep it."""

    topic: str
    partition: int
    window_ms: int
    by: By
    tally: Tally
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Rules:
    window_ms: int
    lateness_ms: int
    with_lake: frozenset[str] = frozenset()
    """The topics that are kept in a table."""


@dataclass(slots=True)
class Evidence:
    """All that was counted."""

    produced: Iterable[Counts] = ()
    lives: Iterable[Life] = ()
    in_topic: Sequence[Part] = ()
    in_lake: Sequence[Part] = ()
    begun_ms: Mapping[str, int] = field(default_factory=dict)
    """As `begins` says, of all that was ever counted."""


@dataclass(slots=True)
class Window:
    """The result for a topic's window. Losses and doublings are the least that explains the difference."""

    topic: str
    begin_ms: int
    end_ms: int
    state: State = State.OPEN
    produced: int | None = None
    """None: no producer of this topic publishes counts."""
    in_topic: int = 0
    in_lake: int | None = None
    """None: no table keeps this topic."""
    lost_in_topic: int = 0
    doubled_in_topic: int = 0
    lost_in_lake: int = 0
    doubled_in_lake: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.lost_in_topic + self.lost_in_lake

    @property
    def doubled(self) -> int:
        return self.doubled_in_topic + self.doubled_in_lake

    @property
    def differs(self) -> bool:
        return bool(self.lost or self.doubled)


Covered = Callable[[str], int]
"""Until when everything in a topic has been counted, in milliseconds."""


def compare(evidence: Evidence, rules: Rules, now_ms: int, covered_ms: Covered) -> list[Window]:
    """Every window of which something is known, by topic and time."""
    counted = Counted(evidence, rules)
    living, killed = living_and_killed(evidence.lives, now_ms)
    windows = []
    for topic, begin_ms in sorted(counted.places()):
        window = counted.window(topic, begin_ms)
        is_over = window.end_ms + rules.lateness_ms <= min(now_ms, covered_ms(topic))
        if is_over and not counted.is_lake_behind(window) and not counted.may_be_published(window, living):
            window.state = counted.judge(window, killed)
        windows.append(window)
    return windows


class Counted:
    """The evidence, added up by topic and window."""

    def __init__(self, evidence: Evidence, rules: Rules) -> None:
        self._rules = rules
        self._produced: dict[tuple[str, int], Tally] = {}
        self._foreign: dict[str, list[Counts]] = defaultdict(list)
        self._topic = {by: added(evidence.in_topic, by) for by in By}
        self._lake = added(evidence.in_lake, By.POSITIONS)
        self._last = last_offsets(evidence.in_topic)
        self._reached = reached_offsets(evidence.in_lake)
        self._begun_ms = evidence.begun_ms
        for counts in latest(evidence.produced):
            if counts.window_length_ms == rules.window_ms:
                place = counts.topic, counts.window_ms
                self._produced.setdefault(place, Tally()).merge(counts.tally)
            else:
                self._foreign[counts.topic].append(counts)
        self._with_counts = {topic for topic, _ in self._produced}

    def places(self) -> set[tuple[str, int]]:
        return {*self._produced, *self._topic[By.RECORDS], *self._lake}

    def window(self, topic: str, begin_ms: int) -> Window:
        place = topic, begin_ms
        window = Window(topic, begin_ms, begin_ms + self._rules.window_ms)
        records = self._topic[By.RECORDS].get(place, Tally())
        window.in_topic = records.count
        if topic in self._with_counts:
            produced = self._produced.get(place, Tally())
            window.produced = produced.count
            window.lost_in_topic, window.doubled_in_topic = difference(produced, records)
        if topic in self._rules.with_lake:
            lake = self._lake.get(place, Tally())
            window.in_lake = lake.count
            positions = self._topic[By.POSITIONS].get(place, Tally())
            window.lost_in_lake, window.doubled_in_lake = difference(positions, lake)
        return window

    def is_lake_behind(self, window: Window) -> bool:
        """Whether a table has not come to the end of the window yet, in some partition."""
        if window.topic not in self._rules.with_lake:
            return False
        last = self._last.get((window.topic, window.begin_ms), {})
        is_behind = any(self._reached.get((window.topic, p), -1) < offset for p, offset in last.items())
        if is_behind:
            window.notes.append("the lake has not come so far")
        return is_behind

    def may_be_published(self, window: Window, living: Sequence[Life]) -> bool:
        """Whether a producer, which may have been killed just now, has not said its last word on a surplus."""
        over_ms = window.end_ms + self._rules.lateness_ms
        return bool(window.doubled_in_topic) and any(life.at_ms < over_ms for life in living)

    def judge(self, window: Window, killed: Sequence[Life]) -> State:
        """Of a window that is over."""
        doubts = [doubt for doubt in self._doubts(window, killed) if doubt.bears_on(window)]
        window.notes += [doubt.note for doubt in doubts]
        if window.lost_in_lake or window.doubled_in_lake:
            return State.WRONG
        is_loss_clear = window.lost_in_topic and not any(doubt.loss for doubt in doubts)
        is_surplus_clear = window.doubled_in_topic and not any(doubt.surplus for doubt in doubts)
        if is_loss_clear or is_surplus_clear:
            return State.WRONG
        return State.UNSURE if doubts else State.RIGHT

    def _doubts(self, window: Window, killed: Sequence[Life]) -> Iterable[Doubt]:
        begun_ms = self._begun_ms.get(window.topic)
        if begun_ms is not None and window.begin_ms <= begun_ms:
            yield Doubt(note="the topic had lost its first records when the audit began", loss=True)
        late_ms = self._rules.lateness_ms
        for life in killed:
            if window.begin_ms - late_ms <= life.at_ms < window.end_ms + late_ms:
                name = life.origin.producer or life.origin.instance
                yield Doubt(note=f"the producer {name} on {life.origin.host} was killed", surplus=True)
        others = [
            counts
            for counts in self._foreign[window.topic]
            if counts.window_ms < window.end_ms
            and counts.window_ms + counts.window_length_ms > window.begin_ms
        ]
        if others:
            length_s = others[0].window_length_ms / 1000
            yield Doubt(note=f"a producer counts by windows of {length_s:g} s", surplus=True, always=True)


@dataclass(frozen=True, slots=True)
class Doubt:
    note: str
    loss: bool = False
    surplus: bool = False
    always: bool = False
    """Also where nothing differs."""

    def bears_on(self, window: Window) -> bool:
        """Whether it may be the cause of what differs between producers and topic."""
        return bool(
            self.always or (self.loss and window.lost_in_topic) or (self.surplus and window.doubled_in_topic)
        )


def latest(produced: Iterable[Counts]) -> list[Counts]:
    """Of each key the total with the highest sequence."""
    found: dict[str, Counts] = {}
    for counts in produced:
        known = found.get(counts.key)
        if known is None or known.sequence < counts.sequence:
            found[counts.key] = counts
    return list(found.values())


def living_and_killed(lives: Iterable[Life], now_ms: int) -> tuple[list[Life], list[Life]]:
    """The last words of instances that were not closed: killed is who has been silent for longer than a living one."""
    last: dict[str, Life] = {}
    for life in lives:
        known = last.get(life.key)
        if known is None or known.sequence < life.sequence:
            last[life.key] = life
    open_ones = [life for life in last.values() if not life.closed]
    silent_ms = {life.key: SILENT_INTERVALS * life.interval_ms + SILENT_MORE_MS for life in open_ones}
    living = [life for life in open_ones if life.at_ms + silent_ms[life.key] >= now_ms]
    return living, [life for life in open_ones if life not in living]


def added(parts: Iterable[Part], by: By) -> dict[tuple[str, int], Tally]:
    total: dict[tuple[str, int], Tally] = {}
    for part in parts:
        if part.by is by:
            total.setdefault((part.topic, part.window_ms), Tally()).merge(part.tally)
    return total


def last_offsets(parts: Iterable[Part]) -> dict[tuple[str, int], dict[int, int]]:
    """By topic and window, the last offset in each partition."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    for part in parts:
        last = found.setdefault((part.topic, part.window_ms), {})
        last[part.partition] = max(part.last_offset, last.get(part.partition, -1))
    return found


def reached_offsets(parts: Iterable[Part]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for part in parts:
        place = part.topic, part.partition
        found[place] = max(part.last_offset, found.get(place, -1))
    return found


def begins(firsts: Iterable[tuple[str, int, int, int]]) -> dict[str, int]:
    """For topics whose first records were gone when they were first counted: the window of the first that was.

    Of (topic, partition, offset, window), any number for each partition.
    """
    first: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, partition, offset, window_ms in firsts:
        place = topic, partition
        first[place] = min((offset, window_ms), first.get(place, (offset, window_ms)))
    found: dict[str, int] = {}
    for (topic, _), (offset, window_ms) in first.items():
        if offset > 0:
            found[topic] = max(window_ms, found.get(topic, 0))
    return found


def document(window: Window) -> dict[str, Any]:
    """A window for programs; times in milliseconds since 1970."""
    return {
        "topic": window.topic,
        "begin_ms": window.begin_ms,
        "end_ms": window.end_ms,
        "state": "closed" if window.state.is_closed else "open",
        "verdict": None if window.state is State.OPEN else window.state.value,
        "produced": window.produced,
        "in_topic": window.in_topic,
        "in_lake": window.in_lake,
        "lost": window.lost,
        "doubled": window.doubled,
        "lost_in_topic": window.lost_in_topic,
        "doubled_in_topic": window.doubled_in_topic,
        "lost_in_lake": window.lost_in_lake,
        "doubled_in_lake": window.doubled_in_lake,
        "notes": list(window.notes),
    }


def always(time_ms: int) -> Covered:
    return lambda _topic: time_ms


def by_topic(times_ms: Mapping[str, int]) -> Covered:
    """A topic of which nothing is known has not been counted at all."""
    return lambda topic: times_ms.get(topic, 0)
