"""What is remembered of the bytes that were checked is never more than what was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.base.limits import CHECKED_STRETCHES_MAX
from moldau.log.checked import Checked

SIZE = 60
stretches = st.lists(st.tuples(st.integers(0, SIZE), st.integers(1, 20)), max_size=20)


@given(st.integers(0, SIZE), stretches)
def test_only_what_was_added_counts_as_checked(above: int, added: list[tuple[int, int]]) -> None:
    checked, sound = Checked(above), set(range(above, SIZE))
    for start, length in added:
        stop = min(SIZE, start + length)
        if stop > start:
            checked.add(start, stop)
            sound |= set(range(start, stop))
        for position in range(SIZE):
            end = checked.end_from(position, SIZE)
            assert set(range(position, end)) <= sound


@given(stretches)
def test_a_few_stretches_are_all_remembered(added: list[tuple[int, int]]) -> None:
    checked = Checked(SIZE)
    for start, length in added[:4]:
        stop = min(SIZE, start + length)
        if stop > start:
            checked.add(start, stop)
            assert checked.end_from(start, stop) == stop


def test_what_is_cut_off_is_forgotten() -> None:
    checked = Checked(100)
    checked.add(10, 50)
    checked.add_bad(50, "bad")
    checked.cut(30)
    assert checked.end_from(10, 30) == 30
    assert checked.bad_at(50) is None
    assert checked.end_from(30, 40) == 40, "what is appended is checked"


def test_what_touches_is_one_stretch_and_the_furthest_is_forgotten() -> None:
    far = 10 * CHECKED_STRETCHES_MAX
    checked = Checked(2 * far)
    for start in range(0, far, 10):
        checked.add(start, start + 5)
    assert len(checked) == CHECKED_STRETCHES_MAX
    checked.add(far, far + 5)
    assert len(checked) == CHECKED_STRETCHES_MAX
    assert checked.end_from(0, 5) == 0
    assert checked.end_from(far, far + 5) == far + 5
    for start in range(5, far, 10):
        checked.add(start, start + 5)
    assert len(checked) == 1
    assert checked.end_from(10, far) == far
    checked.add(far, 2 * far)
    assert (len(checked), checked.above) == (0, 5)
