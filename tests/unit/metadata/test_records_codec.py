"""What a controller sends arrives as it was, in pieces that no loop has to wait long for."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.metadata.codec import PARTITIONS_PER_PIECE, decoded, encoded
from moldau.metadata.image import ClusterImage, image_from, snapshot_of
from moldau.metadata.records import (
    BrokerChanged,
    BrokerInfo,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    ControllerElected,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    Position,
    ProducerIdsAllocated,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)

numbers = st.integers(0, 2**31 - 1)
texts = st.text(max_size=8)
ids = st.lists(numbers, max_size=4).map(tuple)
uuids = st.uuids()
states = st.builds(
    PartitionState,
    st.integers(-1, 9),
    numbers,
    ids,
    ids,
    numbers,
    ids,
    ids,
    ids,
    ids,
    st.booleans(),
    ids,
)
partitions = st.lists(states, min_size=1, max_size=4).map(tuple)
configs = st.dictionaries(texts, texts, max_size=3)
addresses = st.none() | st.tuples(texts, numbers)
brokers = st.builds(
    BrokerInfo,
    numbers,
    st.dictionaries(texts, addresses, max_size=2),
    st.none() | texts,
    numbers,
    uuids,
    st.booleans(),
    st.booleans(),
    st.lists(uuids, max_size=2).map(tuple),
    texts,
)
records = st.one_of(
    st.builds(BrokerRegistered, brokers),
    st.builds(BrokerChanged, numbers, numbers, st.booleans(), st.booleans()),
    st.builds(BrokerUnregistered, numbers),
    st.builds(ControllerElected, numbers, numbers),
    st.builds(TopicCreated, texts, uuids, partitions, configs),
    st.builds(TopicDeleted, texts, uuids),
    st.builds(PartitionsAdded, texts, uuids, partitions),
    st.builds(PartitionsChanged, texts, uuids, st.dictionaries(numbers, states, max_size=3)),
    st.builds(ConfigChanged, st.builds(ConfigResource, st.sampled_from(list(ResourceType)), texts), configs),
    st.builds(ProducerIdsAllocated, numbers),
)


def sent(given_records: list[Record]) -> list[Record]:
    return [record for piece in decoded(encoded(given_records)) for record in piece]


@given(st.lists(records, max_size=5))
def test_records_arrive_as_they_were_sent(given_records: list[Record]) -> None:
    arrived = sent(given_records)
    assert arrived == given_records
    assert [type(record) for record in arrived] == [type(record) for record in given_records]
    assert all(type(state) is PartitionState for state in states_in(arrived))


def states_in(arrived: list[Record]) -> list[PartitionState]:
    return [
        state
        for record in arrived
        if isinstance(record, TopicCreated | PartitionsAdded)
        for state in record.partitions
    ]


def image_with(partition_count: int) -> ClusterImage:
    image = ClusterImage("cluster")
    state = PartitionState(1, 5, (1, 2, 3), (1, 2), 7, elr=(3,))
    image.apply(ControllerElected(2, 9))
    image.apply(BrokerRegistered(BrokerInfo(1, {"A": ("h", 1), "B": None}, "r", 4, UUID(int=8))))
    image.apply(BrokerRegistered(BrokerInfo(2, {}, is_fenced=True)))
    image.apply(TopicCreated("big", UUID(int=1), (state,) * partition_count, {"a": "b"}))
    image.apply(TopicCreated("with.dot", UUID(int=2), (state,), {}))
    image.apply(ConfigChanged(ConfigResource(ResourceType.BROKER, ""), {"c": "d"}))
    image.apply(ProducerIdsAllocated(3000))
    image.position = Position(9, 30)
    return image


@pytest.mark.parametrize("count", [1, PARTITIONS_PER_PIECE, PARTITIONS_PER_PIECE + 1, 1700])
def test_an_image_comes_out_of_its_snapshot_as_it_was(count: int) -> None:
    image = image_with(count)
    snapshot = snapshot_of(image)
    again = image_from(snapshot._replace(records=tuple(sent(list(snapshot.records)))))
    assert snapshot_of(again) == snapshot
    assert again.colliding_topic("with_dot") == "with.dot"
    assert list(again.brokers) == [1] and list(again.registered) == [1, 2]
    assert (again.controller_id, again.controller_epoch) == (2, 9)


@pytest.mark.parametrize("kind", ["created", "added", "changed"])
def test_no_piece_has_more_than_its_share_of_partitions(kind: str) -> None:
    state = PartitionState(1, 0, (1,), (1,))
    many = {
        "created": TopicCreated("a", UUID(int=1), (state,) * 1234, {}),
        "added": PartitionsAdded("a", UUID(int=1), (state,) * 1234),
        "changed": PartitionsChanged("a", UUID(int=1), dict.fromkeys(range(1234), state)),
    }[kind]
    pieces = list(decoded(encoded([many, TopicDeleted("b", UUID(int=2))])))
    counts = []
    for piece in pieces:
        for record in piece:
            match record:
                case TopicCreated() | PartitionsAdded():
                    counts.append(len(record.partitions))
                case PartitionsChanged():
                    counts.append(len(record.states))
    assert counts == [500, 500, 234]
    assert len(pieces) == 3


@pytest.mark.parametrize(
    "piece", [b"", b"{}x", b'["topic"]', b'[["no such record"]]', b'[["topic","a"]]', b"\xff", b"[[]]", b"7"]
)
def test_bytes_that_are_not_records_are_refused(piece: bytes) -> None:
    with pytest.raises(ValueError):
        list(decoded([piece]))
