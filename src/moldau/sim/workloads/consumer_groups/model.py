"""What the members of a consumer group (KIP-848) may rely on (promises 5 and 6), whatever happens meanwhile:

- No two members are given one partition in one epoch.
- Nobody is given a partition that another one still has, unless the coordinator may take that one for gone: it was not
  heard of for a session, or did not give up in time what it was asked to.
- A member that has lost a partition to another one commits nothing for it any more.
- In a quiet world every partition that somebody wants has an owner in the end.

What holds for the group's offsets is in `sim.commits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from moldau.base.ids import TopicPartition
from moldau.sim.commits import CommitModel, Fate
from moldau.sim.model import Model


@dataclass(eq=False, slots=True)
class Belief:
    """What one member knows of itself, from its start to its end."""

    name: str
    """Of the member; of a static one its instance, which another process may take over."""
    safe_s: float = 0.0
    """Until when the coordinator may not take it for gone."""
    owned: dict[TopicPartition, int] = field(default_factory=dict)
    """With the epoch in which it was given each, counted on where a group begins anew."""
    heard_s: dict[TopicPartition, float] = field(default_factory=dict)
    """When it heard of each."""


class ConsumerGroupModel:
    """`patience_s` is how long a member that says nothing keeps what it has, at least."""

    def __init__(self, model: Model, clock: Callable[[], float], patience_s: float) -> None:
        self.commits = CommitModel(model)
        self.is_calm = False
        """Members stay, and want what they want, so that the group can settle."""
        self._model = model
        self._clock = clock
        self._patience_s = patience_s
        self._beliefs: list[Belief] = []
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self._latest: dict[TopicPartition, tuple[int, str]] = {}
        self._highest = -1
        self._reborn = (-1, 0.0)
        """A group without members that changes its protocol begins anew: the last epoch before that, and when."""
        self._lost: set[int] = set()
        """Numbers of commits whose partition was another one's for sure when they were sent."""

    # ---- members --------------------------------------------------------------------------------------------

    def on_member(self, name: str) -> Belief:
        """A member begins, perhaps in the place of one with the same name."""
        self._beliefs = [belief for belief in self._beliefs if belief.name != name]
        belief = Belief(name)
        self._beliefs.append(belief)
        return belief

    def on_heard(self, belief: Belief, sent_s: float, epoch: int, assigned: Iterable[TopicPartition]) -> None:
        """The coordinator has answered a heartbeat: what the member has from now on, beside what it is to give up."""
        belief.safe_s = max(belief.safe_s, sent_s + self._patience_s)
        epoch = self._counted_on(belief, epoch)
        is_of_this_group = sent_s > self._reborn[1]
        for place in assigned:
            if is_of_this_group:
                self._check_one_owner(belief, epoch, place)
            if place not in belief.owned:
                self._check_released(belief, epoch, place)
                belief.owned[place] = epoch
                belief.heard_s[place] = self._clock()
                if epoch > self._latest.get(place, (-1, ""))[0]:
                    self._latest[place] = (epoch, belief.name)

    def _counted_on(self, belief: Belief, epoch: int) -> int:
        now_s = self._clock()
        counted = self._reborn[0] + 1 + epoch
        others = (other for other in self._beliefs if other is not belief)
        if counted < self._highest and not any(other.owned and now_s < other.safe_s for other in others):
            self._reborn = (self._highest, now_s)
            counted = self._highest + 1 + epoch
        self._highest = max(self._highest, counted)
        return counted

    def on_given_up(self, belief: Belief, places: Iterable[TopicPartition]) -> None:
        for place in list(places):
            del belief.owned[place], belief.heard_s[place]

    def _check_one_owner(self, belief: Belief, epoch: int, place: TopicPartition) -> None:
        owner = self._owners.setdefault((epoch, place), belief.name)
        if owner != belief.name:
            self._fail(place, f"one owner in epoch {epoch}, which is {owner}", f"{belief.name} has it too")

    def _check_released(self, belief: Belief, epoch: int, place: TopicPartition) -> None:
        """Answers may be late: who has the lower epoch had the partition first."""
        if not self._model.is_linear:  # a coordinator of before may have told it that it is safe
            return
        now_s = self._clock()
        for other in self._beliefs:
            since = other.owned.get(place)
            if other is belief or since is None:
                continue
            first, second, second_s = other, belief, now_s
            if epoch < since:
                first, second, second_s = belief, other, other.heard_s[place]
            if second_s < first.safe_s:
                self._fail(
                    place,
                    f"{first.name}, which has it since epoch {min(epoch, since)}, to keep it until {first.safe_s:.3f}",
                    f"{second.name} was given it in epoch {max(epoch, since)}",
                )

    # ---- commits --------------------------------------------------------------------------------------------

    def on_commit_sent(self, belief: Belief, place: TopicPartition, since_epoch: int) -> int:
        """The number, and offset, of a new commit by one who was given the partition in an epoch."""
        number = self.commits.on_sent(place, since_epoch)
        if self.is_lost(belief, place, since_epoch):
            self._lost.add(number)
        return number

    def is_lost(self, belief: Belief, place: TopicPartition, since_epoch: int) -> bool:
        """Whether a partition that a member was given in an epoch is another one's by now, for sure."""
        epoch, owner = self._latest[place]
        if not self._model.is_linear:
            return False
        return owner != belief.name and epoch > since_epoch

    def on_commit_answered(self, belief: Belief, place: TopicPartition, number: int, fate: Fate) -> None:
        self.commits.on_answered(number, fate)
        if fate is Fate.ACKNOWLEDGED and number in self._lost:
            owner = self._latest[place][1]
            self._fail(place, f"no commit of {belief.name}, which has lost it to {owner}", str(number))

    # ---- the end --------------------------------------------------------------------------------------------

    def unowned(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """What nobody has who is there."""
        now_s = self._clock()
        owned = {place for belief in self._beliefs if now_s < belief.safe_s for place in belief.owned}
        return [place for place in wanted if place not in owned]

    def _fail(self, place: TopicPartition, expected: str, found: str) -> None:
        self._model.fail(place, expected, found)
