"""Counts and checksums that add up, and what two of them tell about loss and doubling."""

from __future__ import annotations

import random

import pytest

from moldau.audit.tally import BUCKETS, Difference, Tally, difference, identity, window_of


def tally_of(numbers: list[int]) -> Tally:
    tally = Tally()
    for number in numbers:
        tally.add(identity(1_000, b"key", str(number).encode()))
    return tally


def test_the_order_and_the_parts_in_which_records_are_counted_do_not_matter() -> None:
    numbers = list(range(1000))
    random.Random(1).shuffle(numbers)
    parts = tally_of(numbers[:300])
    parts.merge(tally_of(numbers[300:]))
    assert parts == tally_of(list(range(1000)))
    assert parts.count == 1000
    assert difference(tally_of(list(range(1000))), parts) == Difference(0, 0)


def test_a_loss_and_a_doubling_in_one_window_do_not_hide_each_other() -> None:
    expected = tally_of(list(range(1000)))
    for lost in range(100):
        found = tally_of([number for number in range(1000) if number != lost] + [(lost + 1) % 1000])
        assert found.count == expected.count
        assert difference(expected, found) == Difference(1, 1)


def test_several_losses_and_doublings_are_counted_up_to_those_of_one_bucket() -> None:
    expected = tally_of(list(range(1000)))
    found = tally_of([*range(5, 1000), 700, 701, 702])
    missing, surplus = difference(expected, found)
    assert missing - surplus == 2
    assert 2 <= missing <= 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, b"k", b"v"), (2, b"k", b"v")),
        ((1, b"k", b"v"), (1, b"", b"kv")),
        ((1, None, b"v"), (1, b"", b"v")),
        ((1, b"k", None), (1, b"k", b"")),
    ],
)
def test_records_that_differ_in_anything_but_headers_have_other_identities(
    one: tuple[int, bytes | None, bytes | None], other: tuple[int, bytes | None, bytes | None]
) -> None:
    assert identity(*one) != identity(*other)


def test_sums_go_through_signed_numbers_and_back() -> None:
    tally = tally_of(list(range(200)))
    assert all(-(1 << 63) <= one < 1 << 63 for one in tally.signed_sums)
    assert min(tally.signed_sums) < 0
    assert Tally.of(tally.counts, tally.signed_sums) == tally
    with pytest.raises(ValueError, match=f"{BUCKETS} buckets"):
        Tally.of([1], [2])


def test_a_window_begins_at_a_multiple_of_its_length_before_1970_too() -> None:
    assert window_of(60_000, 60_000) == 60_000
    assert window_of(119_999, 60_000) == 60_000
    assert window_of(-1, 60_000) == -60_000
