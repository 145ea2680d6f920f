"""A decision in the making: the steps of one event add their records and answers to it."""

from __future__ import annotations

from typing import Any

from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment


class Draft:
    __slots__ = ("_answers", "_effects", "_records", "moment")

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self._records: list[Any] = []
        self._answers: list[tuple[Reply, Any]] = []
        self._effects: list[Any] = []

    def record(self, record: Any) -> None:
        self._records.append(record)

    def answer(self, reply: Reply | None, response: Any) -> None:
        """Nothing where nobody waits."""
        if reply is not None:
            self._answers.append((reply, response))

    def ask_for(self, effect: Any) -> None:
        """Work outside of the shard."""
        self._effects.append(effect)

    def decision(self) -> Decision:
        return Decision(self._records, self._answers, effects=self._effects)
