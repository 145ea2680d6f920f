"""How `moldau audit` shows windows; the whole is in tests/spark/test_audit.py."""

from __future__ import annotations

from moldau.audit.comparison import State, Window
from moldau.cli.audit import cells, clock, exit_code, line, summary
from moldau.cli.errors import Exit


def window(state: State, **figures: int | None) -> Window:
    found = Window("orders", 1_794_960_000_000, 1_794_960_060_000, state, 1200, 1199, 1200)
    for name, value in figures.items():
        setattr(found, name, value)
    return found


def test_a_wrong_window_says_what_differs_where() -> None:
    shown = window(State.WRONG, lost_in_topic=1, doubled_in_lake=2)
    assert cells(shown) == [
        *("orders", clock(shown.begin_ms), "1,200", "1,199", "1,200", "1", "2", "closed, wrong"),
        "lost 1 in the topic; doubled 2 in the lake",
    ]
    assert "1,200 produced, 1,199 in the topic, 1,200 in the lake: " in line(shown)
    assert "wrong, lost 1 in the topic, doubled 2 in the lake" in line(shown)


def test_an_open_window_shows_no_loss_yet_and_what_is_not_known_is_a_dash() -> None:
    shown = window(State.OPEN, lost_in_topic=1, produced=None, in_lake=None)
    assert cells(shown)[2:] == ["-", "1,199", "-", "", "", "open", ""]
    assert "produced" not in line(shown)


def test_the_exit_code_is_that_of_the_worst_window() -> None:
    right, wrong, unsure, still_open = map(window, (State.RIGHT, State.WRONG, State.UNSURE, State.OPEN))
    assert exit_code([right, unsure, still_open]) == Exit.OK
    assert exit_code([right, wrong]) == Exit.FAILED
    assert "4 windows: 1 right, 1 wrong, 1 unsure, 1 open." in summary([right, wrong, unsure, still_open])
