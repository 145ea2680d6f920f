"""A queue and a broadcast read the same topic at the same time, also when a worker of the queue is killed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

from cluster.support import wait_until
from examples.stage import EXAMPLES, PARTITIONS, TIMEOUT_S, Running, Stage

ORDERS = 30
EVERY_PARTITION = set(range(PARTITIONS))


def join(stage: Stage, kind: str, name: str) -> Running:
    return stage.start(f"python examples/queue_and_broadcast.py {kind} {name}")


def owned(member: Running) -> set[int]:
    """The partitions that it was given last."""
    given = [line for line in list(member.lines) if "has partitions" in line]
    return {int(number) for number in re.findall(r"\d+", given[-1])} if given else set()


def got(*members: Running) -> Counter[int]:
    return Counter(number for member in members for number in member.orders)


def test_an_order_goes_to_one_worker_of_the_queue_and_to_every_screen(stage: Stage) -> None:
    queue = [join(stage, "queue", name) for name in ("anna", "ben")]
    screens = [join(stage, "broadcast", name) for name in ("hall", "office")]

    def is_shared() -> bool:
        parts = [owned(worker) for worker in queue]
        return all(parts) and not parts[0] & parts[1] and set.union(*parts) == EVERY_PARTITION

    wait_until(is_shared, TIMEOUT_S, "the queue to be shared")
    wait_until(lambda: all(owned(s) == EVERY_PARTITION for s in screens), TIMEOUT_S, "the screens to be on")
    stage.add_orders(ORDERS)
    once = Counter(stage.orders)
    each_of_them = [queue, *([screen] for screen in screens)]
    wait_until(lambda: all(got(*group) >= once for group in each_of_them), TIMEOUT_S, "all to be read")
    for member in [*queue, *screens]:
        member.interrupt()
    assert all(got(*group) == once for group in each_of_them)
    assert all(worker.orders for worker in queue), "one did all the work"


def test_the_orders_of_a_killed_worker_go_to_another(stage: Stage) -> None:
    stage.add_orders(ORDERS)
    anna, screen = join(stage, "queue", "anna"), join(stage, "broadcast", "hall")
    anna.wait_orders(ORDERS // 3)
    anna.kill()
    stage.add_orders(ORDERS)
    ben = join(stage, "queue", "ben")
    wait_until(lambda: got(anna, ben).keys() == stage.orders, TIMEOUT_S, "the other worker to do the rest")
    wait_until(lambda: got(screen).keys() == stage.orders, TIMEOUT_S, "the screen to show all")
    ben.interrupt()
    screen.interrupt()
    repeated = [number for number, count in got(anna, ben).items() if count > 1]
    assert len(repeated) <= 1, "only what was done and not yet committed is done again"
    assert got(screen) == Counter(stage.orders), "a screen is not disturbed"


def test_who_leaves_with_ctrl_c_leaves_nothing_half_done(stage: Stage) -> None:
    stage.add_orders(ORDERS)
    anna = join(stage, "queue", "anna")
    anna.wait_orders(ORDERS // 3)
    anna.interrupt()
    stage.add_orders(ORDERS)
    ben = join(stage, "queue", "ben")
    wait_until(lambda: got(anna, ben).keys() == stage.orders, TIMEOUT_S, "the other worker to do the rest")
    ben.interrupt()
    assert got(anna, ben) == Counter(stage.orders)


def test_a_kind_that_is_none_is_refused_with_the_usage() -> None:
    words = [sys.executable, str(EXAMPLES / "queue_and_broadcast.py"), "queues", "anna"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")
