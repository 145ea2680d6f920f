"""Deadlines by key: held against a plain dict by random operations, and the promises one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.deadlines import Deadlines


def test_due_keys_come_earliest_first_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at_ms in (("c", 30), ("a", 10), ("b", 20)):
        deadlines.set(key, at_ms)

    assert deadlines.pop_due(9) == []
    assert deadlines.pop_due(20) == ["a", "b"]
    assert deadlines.pop_due(100) == ["c"]
    assert deadlines.pop_due(100) == [] and deadlines.next_ms is None


def test_a_deadline_can_move_both_ways() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 50)
    deadlines.set("a", 90)
    assert deadlines.pop_due(60) == []
    deadlines.set("a", 70)
    assert deadlines.pop_due(70) == ["a"]
    assert deadlines.pop_due(1000) == []


def test_memory_does_not_grow_with_cancelled_deadlines() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(10_000):
        deadlines.set(key, 1_000_000)
        deadlines.cancel(key)

    assert len(deadlines._heap) < 200


@given(
    st.lists(
        st.tuples(st.sampled_from(("set", "cancel", "pop")), st.integers(0, 5), st.integers(0, 100)),
        max_size=60,
    )
)
def test_deadlines_agree_with_a_plain_dict(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, int] = {}
    for what, key, at_ms in steps:
        if what == "set":
            deadlines.set(key, at_ms)
            model[key] = at_ms
        elif what == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            due = {key for key, when in model.items() if when <= at_ms}
            assert set(deadlines.pop_due(at_ms)) == due
            for gone in due:
                del model[gone]
        assert {key: deadlines.get(key) for key in range(6) if deadlines.get(key) is not None} == model
        assert not model or (deadlines.next_ms is not None and deadlines.next_ms <= min(model.values()))
