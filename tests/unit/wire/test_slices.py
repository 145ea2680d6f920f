"""Large requests and answers are read and written in slices: the same as in one go, within named limits."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from moldau.base import limits
from moldau.runtime.line import whole
from moldau.wire import writer
from moldau.wire.apis import APIS, APIS_BY_NAME, Api
from moldau.wire.codec import decode_request, decoding, encode_request, encode_response, encoding
from moldau.wire.frames import WireError, parse_request_header
from moldau.wire.primitives import pack_uvarint
from moldau.wire.schema import message_class
from moldau.wire.sliced_reader import sliced_reader

from .instances import instance
from .test_codec import damage

METADATA, DESCRIBE_GROUPS, HEARTBEAT, OFFSET_FETCH = (
    APIS_BY_NAME[name].key for name in ("Metadata", "DescribeGroups", "BrokerHeartbeat", "OffsetFetch")
)
EACH = 6


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_messages_are_the_same_in_slices_and_in_one_go(api: Api) -> None:
    chance = random.Random(api.name)
    for version in range(api.min_version, api.max_version + 1):
        request, response = (message_class(way, api.key, version) for way in ("request", "response"))
        for _ in range(EACH):
            body = bytearray(encode_request(api.key, version, instance(request, chance)))
            if chance.random() < 0.5:
                damage(body, chance)
            view = memoryview(body)
            try:
                message = decode_request(api.key, version, view, 0)
            except WireError:
                with pytest.raises(WireError):
                    whole(decoding(api.key, version, view, 0))
            else:
                assert whole(decoding(api.key, version, view, 0)) == message
            answer = instance(response, chance)
            pieces = whole(encoding(api.key, version, answer))
            assert b"".join(pieces) == encode_response(api.key, version, answer)


def group_names(count: int) -> memoryview:
    return memoryview(pack_uvarint(count + 1) + b"\2a" * count + b"\0\0")


def test_a_large_request_is_read_with_pauses() -> None:
    pauses = sum(1 for _ in decoding(DESCRIBE_GROUPS, 5, group_names(50_000), 0))
    assert pauses >= 2 * (50_000 // 64), "while it is looked at, and while objects are made of it"


def test_objects_of_nested_arrays_are_made_with_pauses() -> None:
    """OffsetFetch v6: topics with partitions; many of the one, or of the other."""
    topic = b"\2t" + pack_uvarint(2) + bytes(4) + b"\0"
    many_topics = memoryview(b"\2g" + pack_uvarint(20_001) + topic * 20_000 + b"\0")
    read = sliced_reader(message_class("request", OFFSET_FETCH, 6))
    assert sum(1 for _ in read(many_topics, 0)) >= 20_000 // 64
    assert len(whole(decoding(OFFSET_FETCH, 6, many_topics, 0)).topics) == 20_000


def test_a_request_with_more_elements_than_allowed_is_refused_before_it_is_decoded() -> None:
    most = limits.REQUEST_ELEMENTS_MAX
    assert len(whole(decoding(DESCRIBE_GROUPS, 5, group_names(most), 0)).groups) == most
    with pytest.raises(WireError, match="elements"):
        whole(decoding(DESCRIBE_GROUPS, 5, group_names(most + 1), 0))


def test_nested_arrays_count_together_and_null_ones_make_no_room() -> None:
    """OffsetFetch v6: topics with partitions. 400 topics of 300 partitions are too many."""
    topic = b"\2t" + pack_uvarint(301) + bytes(4 * 300) + b"\0"
    body = b"\2g" + pack_uvarint(401) + topic * 400 + b"\0"
    with pytest.raises(WireError, match="elements"):
        whole(decoding(OFFSET_FETCH, 6, memoryview(body), 0))
    key = APIS_BY_NAME["DescribeConfigs"].key  # each resource has a nullable array of keys
    resources = (b"\2\2t\0\0") * (limits.REQUEST_ELEMENTS_MAX + 1)
    body = pack_uvarint(limits.REQUEST_ELEMENTS_MAX + 2) + resources + b"\0\0\0"
    with pytest.raises(WireError, match="elements"):
        whole(decoding(key, 4, memoryview(body), 0))


def test_an_answer_is_written_with_pauses_and_no_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(
        error_code=0, error_message=None, group_id="g" * 1000, group_state="", protocol_type="",
        protocol_data="", members=(), authorized_operations=0,
    )  # fmt: skip
    answer = SimpleNamespace(throttle_time=0, groups=(group,) * 5000)
    assert sum(1 for _ in encoding(DESCRIBE_GROUPS, 5, answer)) > 50
    monkeypatch.setattr(writer, "ANSWER_BYTES_MAX", 1 << 20)
    with pytest.raises(writer.TooLarge):
        whole(encoding(DESCRIBE_GROUPS, 5, answer))


def test_a_large_value_of_an_answer_is_not_copied_and_others_come_before_the_next() -> None:
    metadata = bytes(1_000_000)
    member = SimpleNamespace(
        member_id="m", group_instance_id=None, client_id="", client_host="", member_metadata=metadata,
        member_assignment=b"",
    )  # fmt: skip
    group = SimpleNamespace(
        error_code=0, error_message=None, group_id="g", group_state="", protocol_type="",
        protocol_data="", members=(member,) * 9, authorized_operations=0,
    )  # fmt: skip
    answer = SimpleNamespace(throttle_time=0, groups=(group,))
    assert sum(1 for _ in encoding(DESCRIBE_GROUPS, 5, answer)) == 9
    pieces = whole(encoding(DESCRIBE_GROUPS, 5, answer))
    assert sum(piece is metadata for piece in pieces) == 9
    assert b"".join(pieces) == encode_response(DESCRIBE_GROUPS, 5, answer)


def test_a_header_with_very_many_tagged_fields_is_refused() -> None:
    head = (3).to_bytes(2, "big") + (12).to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    few = head + pack_uvarint(limits.TAGGED_FIELDS_MAX) + b"\x7f\0" * limits.TAGGED_FIELDS_MAX
    assert parse_request_header(memoryview(few + b"\0"))[4] == len(few)
    many = head + pack_uvarint(limits.TAGGED_FIELDS_MAX + 1) + b"\x7f\0" * (limits.TAGGED_FIELDS_MAX + 1)
    with pytest.raises(WireError, match="tagged fields"):
        parse_request_header(memoryview(many + b"\0"))


def test_a_known_tagged_field_has_a_limit_on_its_size() -> None:
    """BrokerHeartbeat v1 has a tagged array of folders."""
    count = limits.TAGGED_FIELD_BYTES_MAX // 16
    value = pack_uvarint(count + 1) + bytes(16 * count)
    body = bytes(4 + 8 + 8 + 2) + b"\1\0" + pack_uvarint(len(value)) + value
    with pytest.raises(WireError, match="tagged field 0"):
        decode_request(HEARTBEAT, 1, memoryview(body), 0)
