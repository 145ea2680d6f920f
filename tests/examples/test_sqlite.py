"""Results and offsets in one SQLite transaction: every order counts exactly once, whenever the program is killed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

from cluster.support import wait_until
from examples.stage import ITEMS, TIMEOUT_S, Running, Stage

COMMAND = "python examples/offsets_in_sqlite.py"
NEW_ORDERS = 20
KILLED_AFTER = (4, 15)


def in_file(stage: Stage) -> tuple[dict[str, int], dict[int, int]]:
    """What was sold, and the next offsets."""
    with closing(sqlite3.connect(stage.folder / "sold.sqlite", timeout=TIMEOUT_S)) as database:
        sold = dict(database.execute("SELECT item, pieces FROM sold"))
        return sold, dict(database.execute("SELECT partition, next_offset FROM next_offsets"))


def sold_before(next_offsets: dict[int, int], orders: dict[tuple[int, int], str]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for (partition, offset), text in orders.items():
        *_, pieces, item = text.split()
        if offset < next_offsets[partition]:
            total[item] += int(pieces)
    return dict(total)


def run_to_the_end(stage: Stage) -> Running:
    """To the end of the topic, and until Ctrl-C."""
    stage.add_orders(NEW_ORDERS)
    worker = stage.start(COMMAND)
    worker.wait_until(lambda: sum(in_file(stage)[1].values()) == len(stage.orders), "all is booked")
    worker.interrupt()
    return worker


def check(stage: Stage) -> dict[str, int]:
    """What was sold is the sum over all orders before the offsets."""
    sold, next_offsets = in_file(stage)
    assert sold == sold_before(next_offsets, stage.read("orders"))
    return sold


def test_totals_and_offsets_agree_at_every_moment(stage: Stage) -> None:
    for count in KILLED_AFTER:
        stage.add_orders(NEW_ORDERS)
        worker = stage.start(COMMAND)
        worker.wait_orders(count)
        worker.kill()
        check(stage)
    last = run_to_the_end(stage)
    sold = check(stage)
    assert last.lines[-3:] == [f"{sold[item]} {item} sold" for item in ITEMS]


def test_two_copies_on_one_file_count_nothing_twice(stage: Stage) -> None:
    copies = [stage.start(COMMAND) for _ in range(2)]
    wait_until(lambda: all(copy.lines for copy in copies), TIMEOUT_S, "both to know where to begin")
    stage.add_orders(2 * NEW_ORDERS)
    wait_until(lambda: any(copy.has_ended for copy in copies), TIMEOUT_S, "one of them to give up")
    for copy in copies:
        if copy.has_ended:
            assert copy.wait() == 1
            assert "booked before: by another copy" in copy.errors()
        else:
            copy.kill()
    run_to_the_end(stage)
    check(stage)
