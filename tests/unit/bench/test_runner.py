"""Which sections are measured."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from bench import runner
from bench.measure import CLUSTER, GROUPS, MANY_PARTITIONS

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="It reads /proc.")
OF_SECTIONS = {
    GROUPS: "_measure_groups",
    CLUSTER: "_measure_clusters",
    MANY_PARTITIONS: "_measure_many_partitions",
}
OF_SINGLE_BROKERS = ("_measure_starts", "_servers", "_measure_running")


@pytest.mark.parametrize("section", OF_SECTIONS)
def test_a_section_alone_starts_no_brokers_of_others(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def note(name: str) -> None:
        def called(*_: Any) -> None:
            measured.append(name)

        monkeypatch.setattr(runner, name, called)

    for name in (*OF_SECTIONS.values(), *OF_SINGLE_BROKERS):
        note(name)
    runner.measure(runner.QUICK, lambda _what: None, section)
    assert measured == [OF_SECTIONS[section]]
