"""The table of other brokers stands in docs/benchmarks.md, and shows the best of each row."""

from __future__ import annotations

import pytest

from bench.measure import Series
from bench.peers import page

NAMES = ("Moldau 1", "Redis Streams 7", "NATS JetStream 2")


def section(**rows: tuple[bool, list[float]]) -> str:
    every = {
        name: Series("us", more, {broker: [value] for broker, value in zip(NAMES, values, strict=True)})
        for name, (more, values) in rows.items()
    }
    return page.section(NAMES, ("confluent-kafka", "click", "rich"), every, runs=3, others=0.25)


@pytest.mark.parametrize(
    ("more_is_better", "values", "row"),
    [
        (False, [3.0, 1.0, 2.0], "| 3 | **1** | 2 |"),
        (True, [3.0, 1.0, 2.0], "| **3** | 1 | 2 |"),
        (True, [5.0, 5.0, 4.0], "| **5** | **5** | 4 |"),
        (True, [5.0, 5.0, 5.0], "| 5 | 5 | 5 |"),
    ],
)
def test_the_best_of_a_row_is_bold(more_is_better: bool, values: list[float], row: str) -> None:
    assert section(cpu=(more_is_better, values)).endswith(f"| cpu | us {row}\n{page.END}")


def test_the_section_names_each_broker_with_its_client_and_how_busy_the_machine_was() -> None:
    text = section(cpu=(False, [1.0, 2.0, 3.0]))
    assert "Moldau 1 with confluent-kafka " in text
    assert "other processes took 25% of the cores" in text


def test_it_comes_before_the_plots_and_takes_the_place_of_the_one_before() -> None:
    first, second = section(cpu=(False, [1.0, 2.0, 3.0])), section(cpu=(False, [7.0, 8.0, 9.0]))
    plain = "# Benchmarks\n\n## Groups\n\n| a |\n\n## Plots\n\n![a](a.png)\n"
    once = page.with_section(plain, first)
    assert once.index("## Groups") < once.index("## Beside other brokers") < once.index("## Plots")
    assert page.section_of(once) == first
    twice = page.with_section(once, second)
    assert page.section_of(twice) == second
    assert twice.replace(second, first) == once


def test_a_page_without_it_stays_without() -> None:
    assert page.section_of("# Benchmarks\n") is None
