"""A producer whose epochs are used up goes on under a new id, however its last transaction ended."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.transaction import transaction
from moldau.sim.world import World

from .copier import END, ID, INIT, TIMEOUT_MS, Copier, Stage, check

LAST_EPOCH = 2
"""In place of 32766, which takes long to come to."""


@pytest.mark.parametrize("how", ["timed out", "fenced"])
def test_a_transaction_that_is_aborted_at_the_last_epoch_is_followed_by_a_new_producer_id(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LAST_USABLE_EPOCH", LAST_EPOCH)
    with World(f"epochs used up, {how}") as world:
        stage = Stage(world, {})
        copier = Copier(stage, own_epochs=True)

        async def main() -> None:
            world.loop.create_task(stage.keep_up())
            await copier.prepare()
            producer = await copier.init()
            while producer[1] < LAST_EPOCH:
                producer = await copier.init()
            fields = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
            await copier.produce(fields, 1)
            if how == "fenced":
                init = {"transactional_id": ID, "transaction_timeout": TIMEOUT_MS}
                answer = await copier.ask(INIT, 4, **init, producer_id=-1, producer_epoch=-1)
                assert answer.error_code is ErrorCode.concurrent_transactions
            await world.sleep(2 * TIMEOUT_MS / 1000)
            answer = await copier.ask(END, 5, **fields, committed=False)
            assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
            assert answer.producer_id != producer[0]
            copier._sequence = 0
            await copier.transact((answer.producer_id, answer.producer_epoch), 2)
            await world.sleep(1.0)
            await check(copier, {2}, {1}, how)

        world.run(main())
        assert not world.failures
