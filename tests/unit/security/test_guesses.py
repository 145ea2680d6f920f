"""Who guesses is slowed, by address; nobody else is, and memory has its bound."""

from __future__ import annotations

import pytest

from moldau.base import limits
from moldau.security.sasl.guesses import FORGOTTEN_AFTER_S, Guesses

DELAY_S = 0.1


def waits(guesses: Guesses, address: str, count: int, now_s: float = 0.0) -> list[float]:
    return [guesses.failed(address, now_s, DELAY_S) for _ in range(count)]


def test_the_first_failures_wait_as_the_setting_says_and_the_next_ones_longer() -> None:
    found = waits(Guesses(), "1.2.3.4", 12)
    assert found[: limits.GUESSES_FREE] == [DELAY_S] * limits.GUESSES_FREE
    assert found == sorted(found) and found[-1] == limits.GUESS_DELAY_S_MAX


def test_a_setting_of_nothing_slows_guessing_all_the_same() -> None:
    guesses = Guesses()
    found = [guesses.failed("1.2.3.4", 0.0, 0.0) for _ in range(12)]
    assert found[0] == 0.0 and found[-1] == limits.GUESS_DELAY_S_MAX


def test_a_longer_setting_stays() -> None:
    assert Guesses().failed("1.2.3.4", 0.0, 30.0) == 30.0


def test_after_a_quiet_minute_an_address_begins_anew() -> None:
    guesses = Guesses()
    waits(guesses, "1.2.3.4", 12)
    assert guesses.failed("1.2.3.4", FORGOTTEN_AFTER_S, DELAY_S) == DELAY_S


def test_addresses_do_not_count_for_each_other() -> None:
    guesses = Guesses()
    waits(guesses, "1.2.3.4", 12)
    assert waits(guesses, "1.2.3.5", 1) == [DELAY_S]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:1.2.3.4", "1.2.3.4", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("client", "client", True),
    ],
)
def test_an_ipv6_address_counts_with_its_network(one: str, other: str, is_same: bool) -> None:
    guesses = Guesses()
    waits(guesses, one, 12)
    assert (waits(guesses, other, 1)[0] > DELAY_S) is is_same


def test_so_many_of_an_address_wait_at_the_same_time() -> None:
    guesses = Guesses()
    waits(guesses, "1.2.3.4", limits.GUESSES_WAITING_PER_ADDRESS_MAX)
    assert guesses.is_full("1.2.3.4") and not guesses.is_full("1.2.3.5")
    guesses.done("1.2.3.4")
    assert not guesses.is_full("1.2.3.4")
    guesses.done("nobody")


def test_the_addresses_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.security.sasl.guesses.GUESSING_ADDRESSES_MAX", 10)
    guesses = Guesses()
    for number in range(100):
        guesses.failed(f"10.0.0.{number}", number * 0.001, DELAY_S)
    assert len(guesses) <= 10
    guesses.failed("1.1.1.1", 1000.0, DELAY_S)
    assert len(guesses) == 1
