"""What the producer counts as stored is there once and in order, though the broker is killed meanwhile."""

from __future__ import annotations

from collections import defaultdict

from examples.stage import Stage, number_of

ORDERS = 30_000


def test_every_order_is_stored_once_and_in_order_though_the_broker_is_killed(stage: Stage) -> None:
    producer = stage.start(f"python examples/produce_orders.py {ORDERS}")
    producer.wait_until(lambda: len(producer.lines) > 0, "the first orders to be stored")
    stage.server.kill()
    stage.server.start()
    assert producer.wait() == 0, producer.errors()
    assert producer.lines[-1] == f"stored {ORDERS} orders"
    of_customer: defaultdict[int, list[int]] = defaultdict(list)
    for text in stage.read("orders").values():
        of_customer[number_of(text) % 10].append(number_of(text))
    assert of_customer == {customer: list(range(customer or 10, ORDERS + 1, 10)) for customer in range(10)}


def test_a_thousand_orders_are_the_default(stage: Stage) -> None:
    assert stage.run("python examples/produce_orders.py").lines[-1] == "stored 1000 orders"
    assert len(stage.read("orders")) == 1000
