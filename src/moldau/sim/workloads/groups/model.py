"""What the members of a group of the classic protocol may rely on (promise 5), whatever happens to the broker:
no two members are given one partition in one generation. What holds for its offsets is in `sim.commits`.
"""

from __future__ import annotations

from moldau.base.ids import TopicPartition
from moldau.sim.commits import CommitModel
from moldau.sim.model import Model


class GroupModel:
    def __init__(self, model: Model) -> None:
        self.commits = CommitModel(model)
        self._model = model
        self._owners: dict[tuple[int, TopicPartition], str] = {}

    def on_assigned(self, generation: int, member_id: str, places: tuple[TopicPartition, ...]) -> None:
        for place in places:
            owner = self._owners.setdefault((generation, place), member_id)
            if owner != member_id:
                self._model.fail(
                    place,
                    f"one owner in generation {generation}, which is {owner}",
                    f"{member_id} was given it too",
                )
