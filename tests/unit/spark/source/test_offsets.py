"""Offsets in the checkpoint, and in options."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.spark.source.offsets import (
    Position,
    TopicPartition,
    parse_offsets,
    parse_partitions,
    read_position,
    write_position,
)

ID = UUID("a295e602-e673-4a9b-8ae2-51eacebd68d8")


def test_a_position_is_the_json_of_sparks_connector() -> None:
    position = Position({TopicPartition("b", 10): 5, TopicPartition("b", 2): 4, TopicPartition("a", 0): 23})
    assert write_position(position) == {"a": {"0": 23}, "b": {"2": 4, "10": 5}}
    assert list(write_position(position)["b"]) == ["2", "10"]
    assert read_position({"a": {"0": 23}}).offsets == {TopicPartition("a", 0): 23}


def test_topic_ids_and_first_offsets_stand_in_keys_without_partitions() -> None:
    position = Position({TopicPartition("a.b", 0): 23}, {"a.b": ID}, {TopicPartition("a.b", 0): 7})
    written = write_position(position)
    assert written == {"a.b": {"0": 23}, "a.b/id/opXmAuZzSpuK4lHqzr1o2A": {}, "a.b/first/0/7": {}}
    assert read_position(written) == position


def test_how_a_batch_is_cut_stands_there_too_and_without_it_no_partitions_share_a_task() -> None:
    position = Position({TopicPartition("a", 0): 23}, together=4000)
    written = write_position(position)
    assert written == {"a": {"0": 23}, "/together/4000": {}}
    assert read_position(written) == position
    assert read_position({"a": {"0": 23}}).together == 1


def test_what_a_later_version_may_write_is_not_taken_for_a_topic() -> None:
    with pytest.raises(ValueError, match="does not know: 'a/epoch/3'"):
        read_position({"a/epoch/3": {}})


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}']
)
def test_what_is_no_json_of_offsets_is_refused_in_sparks_words(text: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_offsets(text)
    assert (
        str(refusal.value) == f'Expected e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {text}'
    )


def test_partitions_are_read_and_refused() -> None:
    assert parse_partitions('{"a": [0, 2]}') == {TopicPartition("a", 0), TopicPartition("a", 2)}
    with pytest.raises(
        ValueError, match=r'Expected e.g. \{"topicA":\[0,1\],"topicB":\[0,1\]\}, got \{"a": 1\}'
    ):
        parse_partitions('{"a": 1}')
