"""The story that every workload tells: trouble for a while, then a quiet world in which every promise is checked twice.

A workload draws a plan from the seed, and makes a run of it: stage, clients, and what must be found at the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from moldau.sim.fabric import Link
from moldau.sim.loop import START_S
from moldau.sim.nemesis import Mixture, Nemesis
from moldau.sim.stage import Outcome, Stage
from moldau.sim.world import World

STEPS_MAX = 3_000_000
"""A run of the usual length takes a tenth of it; one that takes more is going round in circles."""


class Plan(Protocol):
    @property
    def link(self) -> Link: ...
    @property
    def mixture(self) -> Mixture: ...


class Run(Protocol):
    stage: Stage

    async def scenario(self, seconds: float) -> None: ...


P = TypeVar("P", bound=Plan)


def simulate_plan(
    seed: int | str, seconds: float, plan: P, make_run: Callable[[World, P, dict[str, int]], Run]
) -> Outcome:
    """One run, whole: the same for one seed and length in whatever process. What fails unseen is a violation too."""
    outcome = Outcome(seed)
    with World(seed, link=plan.link, steps_max=STEPS_MAX) as world:
        run = make_run(world, plan, outcome.counts)
        model = run.stage.model
        world.run(run.scenario(seconds))
        for failure in world.failures:
            model.fail(None, f"{failure.host} to handle its failures", f"{failure.name}: {failure.error!r}")
        outcome.violations = model.violations
        outcome.virtual_s = world.loop.time() - START_S
        outcome.steps = world.loop.steps
        outcome.digest = world.digest()
        outcome.trace = list(world.trace.lines)
    return outcome


async def through_trouble(
    stage: Stage,
    mixture: Mixture,
    seconds: float,
    verify: Callable[[str], Awaitable[None]],
    *,
    at_calm: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """With the clients at work: trouble, calm, the end of their work, and `verify`, again after a last crash."""
    nemesis = Nemesis(stage, mixture)
    await nemesis.run(START_S + seconds)
    await nemesis.calm()
    if at_calm is not None:
        await at_calm()
    await stage.drain()
    await verify("first")
    if not stage.model.violations:
        (stage.node.kill if mixture.keeps_power else stage.node.crash)()
        await nemesis.calm()
        await verify("second")
    for node in stage.nodes:
        node.check()
