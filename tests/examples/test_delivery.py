"""Workers that are killed with -9 in the middle of a batch and started again keep what their heads promise.

The kills come when a worker has printed so many lines, each in the middle of a batch of ten. What is claimed holds
wherever exactly they hit; before each start there are new orders, so that there is always something to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from cluster.support import wait_until
from examples.stage import TIMEOUT_S, Running, Stage, number_of

NEW_ORDERS = 20
KILLED_AFTER = (4, 15)
BATCH = 10
COUPONS = "python examples/at_most_once.py"
PARCELS = "python examples/at_least_once.py"
INVOICES = "python examples/exactly_once.py"


def run_until_killed(stage: Stage, command: str, count: int) -> Running:
    stage.add_orders(NEW_ORDERS)
    worker = stage.start(command)
    worker.wait_orders(count)
    worker.kill()
    return worker


def run_to_the_end(stage: Stage, command: str, group: str) -> Running:
    """To the end of the topic, and until Ctrl-C."""
    stage.add_orders(NEW_ORDERS)
    worker = stage.start(command)
    stage.wait_all_committed(group, worker)
    worker.interrupt()
    return worker


def done(stage: Stage, group: str) -> set[int]:
    """The orders that the group counts as done."""
    committed = stage.committed(group)
    return {
        number_of(text)
        for (partition, offset), text in stage.read("orders").items()
        if offset < committed[partition]
    }


def repeated(numbers: Iterable[int]) -> set[int]:
    return {number for number, count in Counter(numbers).items() if count > 1}


def test_at_most_once_handles_nothing_twice(stage: Stage) -> None:
    handled: list[int] = []
    for count in KILLED_AFTER:
        handled += run_until_killed(stage, COUPONS, count).orders
        assert set(handled) <= done(stage, "coupons"), "handled before it was committed"
    handled += run_to_the_end(stage, COUPONS, "coupons").orders
    assert not repeated(handled)
    assert len(stage.orders - set(handled)) <= BATCH * len(KILLED_AFTER)


def test_at_least_once_leaves_nothing_out(stage: Stage) -> None:
    handled: list[int] = []
    for count in KILLED_AFTER:
        handled += run_until_killed(stage, PARCELS, count).orders
        assert done(stage, "parcels") <= set(handled), "committed before it was handled"
    handled += run_to_the_end(stage, PARCELS, "parcels").orders
    assert set(handled) == stage.orders
    assert len(repeated(handled)) <= BATCH * len(KILLED_AFTER)


def test_exactly_once_makes_one_invoice_for_each_order_though_the_worker_is_killed(stage: Stage) -> None:
    for count in KILLED_AFTER:
        run_until_killed(stage, INVOICES, count)
    run_to_the_end(stage, INVOICES, "invoices")
    check_invoices(stage)


def test_exactly_once_makes_one_invoice_for_each_order_though_the_broker_is_killed(stage: Stage) -> None:
    workers = [stage.start(INVOICES)]

    def count_handled() -> int:
        if workers[-1].has_ended:  # any error ends it, and someone starts it again
            workers.append(stage.start(INVOICES))
        return sum(len(worker.orders) for worker in workers)

    def has_handled(count: int) -> bool:
        return count_handled() >= count

    for count in KILLED_AFTER:
        before = count_handled()
        stage.add_orders(NEW_ORDERS)
        wait_until(partial(has_handled, before + count), TIMEOUT_S, f"{count} more orders to be handled")
        stage.server.kill()
        stage.server.start()
    workers[-1].kill()
    run_to_the_end(stage, INVOICES, "invoices")
    check_invoices(stage)


def check_invoices(stage: Stage) -> None:
    """One for each order, and no other."""
    orders, invoices = stage.read("orders").values(), stage.read("invoices").values()
    assert sorted(invoices) == sorted(f"invoice for {order}" for order in orders)
