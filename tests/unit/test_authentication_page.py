"""docs/authentication.md: its settings are ones that a broker takes, and its numbers are those of the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moldau.base import limits
from moldau.config.broker import BrokerConfig
from moldau.config.sources import parse_properties

PAGE = (Path(__file__).parents[2] / "docs" / "authentication.md").read_text()
BLOCKS = re.findall(r"^```properties\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
LISTENERS = {
    "listeners": "CLIENTS://:9092,BROKERS://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}
OF_BROKERS = [block for block in BLOCKS if "sasl.enabled" in block or "listener.name" in block]


@pytest.mark.parametrize("block", OF_BROKERS, ids=range(len(OF_BROKERS)))
def test_a_broker_takes_the_settings_of_the_page(block: str) -> None:
    config = BrokerConfig.parse(LISTENERS | parse_properties(block))
    assert config.sasl
    assert config.warnings == []


def test_the_page_has_blocks_for_brokers_and_for_clients() -> None:
    assert len(OF_BROKERS) == 5 and len(BLOCKS) == 7


def test_its_numbers_are_those_of_the_limits() -> None:
    assert (limits.GUESSES_FREE, limits.GUESS_DELAY_S_MAX) == (5, 2.0)
    assert "from the sixth failure of an address within a minute" in PAGE and "up to two seconds" in PAGE
    assert (limits.AUTHENTICATION_S_MAX, limits.AUTHENTICATION_FRAMES_MAX) == (30.0, 10)
    assert "A client has 30 seconds, and ten requests" in PAGE
