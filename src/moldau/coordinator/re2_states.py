"""The states that an expression is compiled to, and texts that are led through them.

All states that a text may have led to are followed at once (Thompson), and where a letter leads from them is kept:
names of topics are much alike, so that most letters cost one look into a table. What is kept is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from moldau.coordinator.re2_letters import Test, is_word

KEPT_MAX = 300_000
"""States and letters kept for one expression, before they are forgotten: some ten megabytes."""


class Beside(IntEnum):
    """What is before or after a place in a text."""

    NOTHING = 0
    NEWLINE = 1
    WORD = 2
    OTHER = 3


Place = Callable[[Beside, Beside], bool]
"""A condition on a place, by what is before and after it."""


def beside(letter: str) -> Beside:
    if letter == "\n":
        return Beside.NEWLINE
    return Beside.WORD if is_word(letter) else Beside.OTHER


class States:
    """A state has a test of a letter, or a condition on the place, or leads on freely; and where it leads."""

    def __init__(self) -> None:
        self.tests: list[Test | None] = []
        self.places: list[Place | None] = []
        self.targets: list[list[int]] = []

    def add(self, test: Test | None = None, place: Place | None = None) -> int:
        self.tests.append(test)
        self.places.append(place)
        self.targets.append([])
        return len(self.tests) - 1

    def reached(self, start: Iterable[int], before: Beside, after: Beside) -> list[int]:
        """All states that are reached without another letter, each once."""
        found: set[int] = set()
        waiting = list(start)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            place = self.places[state]
            if place is not None and not place(before, after):
                continue
            found.add(state)
            if self.tests[state] is None:
                waiting.extend(self.targets[state])
        return sorted(found)


class _Node:
    """Where a part of a text may have led, and what is known of how it goes on."""

    __slots__ = ("accepts", "moves", "start", "steps")

    def __init__(self, start: frozenset[int]) -> None:
        self.start = start
        self.moves: dict[tuple[Beside, Beside], dict[Test, list[int]]] = {}
        """The states that each test leads to, by what is beside the place."""
        self.steps: tuple[dict[str, _Node], ...] = ({}, {}, {}, {})
        """Where a letter leads, by what is before it."""
        self.accepts: dict[Beside, bool] = {}


class Automaton:
    """From a first state to a last one. `matches(text)`: whether all of the text leads there."""

    def __init__(self, states: States, first: int, last: int) -> None:
        self._states = states
        self._first, self._last = frozenset([first]), last
        self._has_places = any(place is not None for place in states.places)
        self._nodes: dict[frozenset[int], _Node] = {}
        self._kept = 0

    def matches(self, text: str) -> bool:
        node = self._node(self._first)
        before = Beside.NOTHING
        for letter in text:
            following = node.steps[before].get(letter) or self._step(node, before, letter)
            if not following.start:
                return False
            node = following
            if self._has_places:
                before = beside(letter)
        if before not in node.accepts:
            ends = self._states.reached(node.start, before, Beside.NOTHING)
            node.accepts[before] = self._last in ends
        return node.accepts[before]

    def _step(self, node: _Node, before: Beside, letter: str) -> _Node:
        place = (before, beside(letter) if self._has_places else Beside.NOTHING)
        moves = node.moves.get(place)
        if moves is None:
            moves = node.moves[place] = self._moves(node.start, *place)
        start = frozenset(target for test, targets in moves.items() if test(letter) for target in targets)
        following = node.steps[before][letter] = self._node(start)
        self._kept += 1
        return following

    def _moves(self, start: frozenset[int], before: Beside, after: Beside) -> dict[Test, list[int]]:
        states = self._states
        moves: dict[Test, list[int]] = {}
        reached = states.reached(start, before, after)
        for state in reached:
            test = states.tests[state]
            if test is not None:
                moves.setdefault(test, []).extend(states.targets[state])
        self._kept += len(reached)
        return moves

    def _node(self, start: frozenset[int]) -> _Node:
        node = self._nodes.get(start)
        if node is None:
            if self._kept > KEPT_MAX:
                self._nodes, self._kept = {}, 0
            node = self._nodes[start] = _Node(start)
            self._kept += len(start)
        return node
