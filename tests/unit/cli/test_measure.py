"""Percentiles, rates and plots."""

from __future__ import annotations

import random

import pytest

from moldau.cli.measure import SAMPLES_MAX, Latencies, Throughput
from moldau.cli.plot import bar, columns, knows_blocks


def test_percentiles_are_right_to_two_percent() -> None:
    chance = random.Random(7)
    values = [chance.lognormvariate(-7, 1) for _ in range(20_000)]
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    values.sort()
    for percent in (50, 90, 99, 99.9):
        exact = values[int(len(values) * percent / 100) - 1]
        assert latencies.percentile(percent) == pytest.approx(exact, rel=0.02)
    assert latencies.as_ms()["max"] == round(values[-1] * 1000, 3)
    assert latencies.as_ms()["mean"] == pytest.approx(sum(values) / len(values) * 1000, rel=0.001)


def test_no_measurement_has_no_latency() -> None:
    assert Latencies().as_ms() == {"mean": 0, "p50": 0, "p90": 0, "p99": 0, "p99.9": 0, "max": 0}
    assert Latencies().classes() == []


def test_one_measurement_is_every_percentile() -> None:
    latencies = Latencies()
    latencies.add(0.003)
    for value in latencies.as_ms().values():
        assert value == pytest.approx(3.0, rel=0.02)


def test_classes_go_from_the_first_to_the_last_that_are_filled() -> None:
    latencies = Latencies()
    for value in (0.0003, 0.0003, 0.004):
        latencies.add(value)
    bounds = [(round(start, 9), round(stop, 9), count) for start, stop, count in latencies.classes()]
    assert bounds == [(0.0002, 0.0005, 2), (0.0005, 0.001, 0), (0.001, 0.002, 0), (0.002, 0.005, 1)]


def test_throughput_is_bytes_per_second_of_each_stretch() -> None:
    throughput = Throughput(slice_s=1.0)
    for second, size in enumerate([100, 300, 300, 100, 5]):
        throughput.add(second + 0.5, size)
    assert throughput.rates(4) == [100, 300, 300, 100]
    assert throughput.rates(2) == [200, 200]


def test_a_long_run_keeps_a_bounded_number_of_slices() -> None:
    throughput = Throughput(slice_s=0.1)
    for second in range(3000):
        throughput.add(float(second), 10)
    assert throughput.slice_s > 0.1
    rates = throughput.rates(SAMPLES_MAX)
    assert len(rates) <= SAMPLES_MAX
    assert sum(rates) * throughput.slice_s == pytest.approx(30_000, rel=0.01)


def test_a_bar_is_as_long_as_its_share_and_never_vanishes() -> None:
    assert bar(1, 10) == "█" * 10
    assert bar(0.5, 10) == "█" * 5
    assert bar(0, 10) == ""
    assert bar(0.0001, 10) == "▏"
    assert bar(0.5, 10, blocks=False) == "#####"


def test_columns_reach_from_zero_to_the_largest_value() -> None:
    assert columns([0, 1, 2], 2) == ["  █", " ██"]
    assert columns([0, 1, 2], 2, blocks=False) == ["  #", " ##"]
    assert columns([0, 0], 2) == ["  ", "  "]


def test_blocks_are_drawn_only_where_the_terminal_knows_them() -> None:
    assert knows_blocks("utf-8")
    assert not knows_blocks("ascii")
    assert not knows_blocks("no such encoding")
