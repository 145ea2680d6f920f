"""What the table says about a key is what the code does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.config.table import BROKER_KEYS, TOPIC_KEYS

SOURCE = Path(__file__).parents[3] / "src" / "moldau"
# Here a key is described, not acted on.
DESCRIBING = (
    "broker_keys.py",
    "group_keys.py",
    "replication_keys.py",
    "ssl_keys.py",
    "transaction_keys.py",
    "inert_keys.py",
    "topic_keys.py",
    "topic.py",
    "docs.py",
)


@pytest.fixture(scope="module")
def code() -> str:
    files = [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name not in DESCRIBING or path.parent.name != "config"
    ]
    return "\n".join(path.read_text() for path in files if path.parts[-2] != "cli")


def test_a_topic_key_that_is_said_to_act_is_looked_at_and_no_other(code: str) -> None:
    # Some are asked for through the properties made of them.
    asked_as = {
        "cleanup_policy": "compact",
        "message_timestamp_type": "log_append_time",
        "segment_ms": "roll_ms",
        "unclean_leader_election_enable": "get(UNCLEAN)",
    }
    for name, key in TOPIC_KEYS.items():
        attribute = name.replace(".", "_")
        is_used = f".{asked_as.get(attribute, attribute)}" in code or f".{attribute}" in code
        if not key.hidden:
            assert is_used == key.acts, name


def test_a_broker_key_that_is_said_to_act_is_looked_at(code: str) -> None:
    defaults = {name for key in TOPIC_KEYS.values() for name in key.synonyms}
    for name, key in BROKER_KEYS.items():
        if key.acts and name not in defaults:
            assert f'"{name}"' in code, name


def test_a_brokers_default_for_a_topic_key_acts_exactly_if_the_topic_key_does() -> None:
    for key in TOPIC_KEYS.values():
        for name in key.synonyms:
            assert BROKER_KEYS[name].acts == key.acts, name
