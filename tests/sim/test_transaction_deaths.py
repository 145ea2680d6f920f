"""Transactions under the death of their client at every step: of a transaction all is seen, or nothing (promise 4).

The client dies before its n-th request has left, or before its answer has come, for every n. Then another instance of
its transactional id comes and goes on, or nobody ever does: then its time is up, and readers are not held up for ever.
"""

from __future__ import annotations

import pytest

from moldau.coordinator.transaction.transaction import Transaction
from moldau.sim.world import World

from .copier import (
    ADD,
    ADD_OFFSETS,
    COMMIT_OFFSETS,
    END,
    INIT,
    PRODUCE,
    TIMEOUT_MS,
    TRANSACTIONS,
    Copier,
    Died,
    Stage,
    check,
)

STEPS = {False: [ADD, ADD_OFFSETS, PRODUCE, COMMIT_OFFSETS, END], True: [PRODUCE, COMMIT_OFFSETS, END]}

NEXT_TO_COMMIT = TRANSACTIONS + TRANSACTIONS % 2


def run_with_death(number: int, before: str, *, own_epochs: bool, has_heir: bool) -> list[int] | None:
    """One run with a death at one request. Without that request: the API keys of all."""
    with World(f"deaths {own_epochs}") as world:
        stage = Stage(world, {})
        copier, heir = Copier(stage, own_epochs), Copier(stage, own_epochs)
        is_dead = False

        async def main() -> None:
            nonlocal is_dead
            world.loop.create_task(stage.keep_up())
            await copier.prepare()
            copier.asked.clear()
            copier.dies_at = (number, before)
            try:
                await copier.run()
            except Died:
                is_dead = True
            if has_heir:
                await heir.transact(await heir.init(), NEXT_TO_COMMIT)
                assert len(heir.committed) == 1
                await world.sleep(0.5)
            else:
                await world.sleep(TIMEOUT_MS / 1000 + 2.0)
            committed, aborted = copier.committed | heir.committed, copier.aborted
            await check(heir, committed, aborted, f"died before request {number} was {before}")

        world.run(main())
        assert not world.failures
        return None if is_dead else copier.asked


@pytest.mark.parametrize("has_heir", [True, False], ids=["another comes", "nobody comes"])
@pytest.mark.parametrize("before", ["sent", "answered"])
@pytest.mark.parametrize("own_epochs", [False, True], ids=["version 1", "version 2"])
def test_a_client_that_dies_at_any_step_leaves_all_of_a_transaction_or_nothing(
    own_epochs: bool, before: str, has_heir: bool
) -> None:
    number = 1
    while (asked := run_with_death(number, before, own_epochs=own_epochs, has_heir=has_heir)) is None:
        number += 1
    assert asked == [INIT] + STEPS[own_epochs] * TRANSACTIONS
    assert number == len(asked) + 1


def test_transactions_that_are_never_timed_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "is_timed_out", lambda *_: False)
    with pytest.raises(AssertionError, match="still open"):
        for number in range(1, 20):
            run_with_death(number, "answered", own_epochs=True, has_heir=False)
