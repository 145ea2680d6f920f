"""What is kept of Metadata answers has bounds, and is what was packed."""

from __future__ import annotations

from moldau.base.limits import METADATA_ANSWERS_KEPT_MAX, METADATA_KEPT_BYTES_MAX
from moldau.broker.kept_answers import KeptAnswers, Packed, in_larger_pieces
from moldau.runtime.line import whole


def test_the_first_answers_make_room_for_further_ones() -> None:
    kept = KeptAnswers()
    for shape in range(METADATA_ANSWERS_KEPT_MAX + 2):
        kept.put(1, shape, Packed([b"x"], {}), 0)
    assert len(kept) == METADATA_ANSWERS_KEPT_MAX
    assert [kept.get(1, shape) is None for shape in range(3)] == [True, True, False]


def test_answers_hold_no_more_than_the_bytes_allowed() -> None:
    kept, half = KeptAnswers(), Packed([bytes(METADATA_KEPT_BYTES_MAX // 2)], {})
    kept.put(1, "too large", half, METADATA_KEPT_BYTES_MAX)
    assert len(kept) == 0
    for shape in ("first", "second", "third"):
        kept.put(1, shape, half, 0)
    assert kept.get(1, "first") is None
    assert kept.get(1, "second") is half
    kept.put(1, "small", Packed([b"x"], {}), 0)
    assert kept.get(1, "second") is None


def test_nothing_is_kept_of_another_version() -> None:
    kept = KeptAnswers()
    kept.put(1, "shape", Packed([b"one"], {}), 0)
    assert kept.get(2, "shape") is None
    kept.put(2, "other", Packed([b"two"], {}), 0)
    assert kept.get(2, "shape") is None
    assert kept.get(1, "shape") is None
    assert len(kept) == 1


def test_larger_pieces_are_the_same_bytes() -> None:
    pieces = [bytes([number % 256]) * 5_000 for number in range(40)]
    larger = whole(in_larger_pieces(pieces))
    assert b"".join(larger) == b"".join(pieces)
    assert len(larger) == 3
    assert whole(in_larger_pieces([b"one"])) == [b"one"]
    assert whole(in_larger_pieces([])) == []
