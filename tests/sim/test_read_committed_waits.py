"""A long poll of a reader of committed records waits for the end of transactions, not for their records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.sim.client import PORT, Wire
from moldau.sim.world import World

from .copier import END, FETCH, ID, Copier, Stage

MAX_WAIT_MS = 10_000


def fetch(wire: Wire, *, committed: bool, min_bytes: int = 1) -> Any:
    row = SimpleNamespace(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    request = SimpleNamespace(
        replica_id=-1,
        max_wait=MAX_WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=(SimpleNamespace(topic="a", partitions=(row,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return wire.send(FETCH, 11, request, 2 * MAX_WAIT_MS / 1000)


def test_records_of_an_open_transaction_end_no_wait_but_its_marker_does() -> None:
    with World("read committed") as world:
        stage = Stage(world, {})
        copier = Copier(stage, own_epochs=True)

        async def connect() -> Wire:
            stream = await stage.client.net.connect("broker", PORT, timeout_s=1.0)
            return Wire(stage.client, stream, "reader", 0, 0.0)

        async def main() -> None:
            world.loop.create_task(stage.keep_up())
            await copier.prepare()
            producer_id, epoch = await copier.init()
            committed = fetch(await connect(), committed=True)
            many = fetch(await connect(), committed=True, min_bytes=140)  # more than a marker has
            anything = fetch(await connect(), committed=False)
            await world.sleep(0.1)
            fields = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch}
            await copier.produce(fields, 0)
            await world.sleep(1.0)
            assert anything.done()
            assert not committed.done()
            assert not many.done()
            copier.expect((await copier.ask(END, 5, **fields, committed=True)).error_code)
            await world.sleep(0.5)
            for answered in (committed, many):
                partition = answered.result().responses[0].partitions[0]
                assert partition.records
                assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)

        world.run(main())
        assert not world.failures
