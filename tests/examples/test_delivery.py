"""Workers that are killed with -9 in the middle of a batch and started again keep what their heads promise.

The kills come when a worker has printed so many lines, each in the middle of a batch of ten. What is claimed holds
wherever exactly they hit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import accumulate

from cluster.support import wait_until
from examples.stage import PARTITIONS, TIMEOUT_S, Place, Running, Stage, number_of

ORDERS = 60
KILLED_AFTER = (4, 15, 17)
BATCH = 10
INVOICES = "python examples/exactly_once.py"


def places_of_orders(stage: Stage) -> dict[int, Place]:
    return {number_of(text): place for place, text in stage.read("orders").items()}


def below(next_offsets: dict[int, int], places: dict[int, Place]) -> set[int]:
    """The orders that the group counts as done."""
    return {number for number, (partition, offset) in places.items() if offset < next_offsets[partition]}


def twice(numbers: Iterable[int]) -> set[int]:
    return {number for number, count in Counter(numbers).items() if count > 1}


def finish(stage: Stage, command: str, group: str, places: dict[int, Place]) -> Running:
    """Once more, to the end of the topic and until Ctrl-C."""
    worker = stage.start(command)
    counts = Counter(partition for partition, _ in places.values())
    stage.wait_committed(group, worker, {partition: counts[partition] for partition in range(PARTITIONS)})
    worker.interrupt()
    return worker


def test_at_most_once_handles_nothing_twice(stage: Stage) -> None:
    command, group = "python examples/at_most_once.py", "coupons"
    stage.produce(ORDERS)
    places = places_of_orders(stage)
    handled: list[int] = []
    for count in KILLED_AFTER:
        worker = stage.start(command)
        worker.wait_orders(count)
        worker.kill()
        handled += worker.orders
        assert set(handled) <= below(stage.committed(group), places), "handled before it was committed"
    handled += finish(stage, command, group, places).orders
    assert not twice(handled)
    assert len(places.keys() - set(handled)) <= BATCH * len(KILLED_AFTER)


def test_at_least_once_leaves_nothing_out(stage: Stage) -> None:
    command, group = "python examples/at_least_once.py", "parcels"
    stage.produce(ORDERS)
    places = places_of_orders(stage)
    handled: list[int] = []
    for count in KILLED_AFTER:
        worker = stage.start(command)
        worker.wait_orders(count)
        worker.kill()
        handled += worker.orders
        assert below(stage.committed(group), places) <= set(handled), "committed before it was handled"
    handled += finish(stage, command, group, places).orders
    assert set(handled) == places.keys()
    assert len(twice(handled)) <= BATCH * len(KILLED_AFTER)


def test_exactly_once_makes_one_invoice_for_each_order_though_the_worker_is_killed(stage: Stage) -> None:
    stage.produce(ORDERS)
    for count in KILLED_AFTER:
        worker = stage.start(INVOICES)
        worker.wait_orders(count)
        worker.kill()
    finish(stage, INVOICES, "invoices", places_of_orders(stage))
    check_invoices(stage)


def test_exactly_once_makes_one_invoice_for_each_order_though_the_broker_is_killed(stage: Stage) -> None:
    stage.produce(ORDERS)
    workers = [stage.start(INVOICES)]

    def has_handled(count: int) -> bool:
        if workers[-1].has_ended:  # any error ends it, and a service manager starts it again
            workers.append(stage.start(INVOICES))
        return sum(len(worker.orders) for worker in workers) >= count

    for count in accumulate(KILLED_AFTER):
        wait_until(partial(has_handled, count), TIMEOUT_S, f"{count} orders to be handled")
        stage.server.kill()
        stage.server.start()
    if not workers[-1].has_ended:
        workers[-1].interrupt()
    finish(stage, INVOICES, "invoices", places_of_orders(stage))
    check_invoices(stage)


def check_invoices(stage: Stage) -> None:
    """One for each order, and no other."""
    orders, invoices = stage.read("orders").values(), stage.read("invoices").values()
    assert sorted(invoices) == sorted(f"invoice for {order}" for order in orders)
