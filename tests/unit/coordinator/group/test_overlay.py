"""An overlay is what a changed copy would be, and leaves its base alone."""

from __future__ import annotations

import random

import pytest

from moldau.coordinator.group.consumer.overlay import Overlay


@pytest.mark.parametrize("seed", range(50))
def test_an_overlay_is_a_changed_copy(seed: int) -> None:
    draw = random.Random(seed)
    base = {draw.randrange(12): draw.randrange(100) for _ in range(8)}
    before, copy, overlay = dict(base), dict(base), Overlay(base)
    for _ in range(40):
        key = draw.randrange(12)
        match draw.choice(("set", "pop", "delete")):
            case "set":
                copy[key] = overlay[key] = draw.randrange(100)
            case "pop":
                assert overlay.pop(key, None) == copy.pop(key, None)
            case "delete" if key in copy:
                del copy[key], overlay[key]
        assert list(overlay.items()) == list(copy.items())
        assert list(overlay.values()) == list(copy.values())
        assert (len(overlay), bool(overlay), overlay) == (len(copy), bool(copy), copy)
        assert [overlay.get(one) for one in range(12)] == [copy.get(one) for one in range(12)]
        assert [one in overlay for one in range(12)] == [one in copy for one in range(12)]
    assert base == before


def test_what_is_not_there_cannot_be_taken_or_deleted() -> None:
    overlay = Overlay({1: 1})
    del overlay[1]
    with pytest.raises(KeyError):
        overlay[1]
    with pytest.raises(KeyError):
        del overlay[1]
    assert overlay.get(1, 7) == 7
