"""A topic's id is no way around the rights for its name: not even while the topic goes, and its log is still here."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sasl_stage import Client, Stage, played

from golden.recorder import build
from moldau.base.errors import ErrorCode
from moldau.config.authorization_keys import AUTHORIZERS
from moldau.records.record import Record, build_batch
from moldau.wire.codec import decode_response, encode_request
from moldau.wire.frames import parse_response_header, request_frame
from moldau.wire.schema import message_class

ADMIN_PORT = 9093
SETTINGS = {"authorizer__class__name": AUTHORIZERS[0], "super__users": "User:ANONYMOUS"}
PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
DENIED, UNKNOWN = ErrorCode.topic_authorization_failed, ErrorCode.unknown_topic_id


async def ask(client: Client, api_key: int, version: int, values: dict[str, Any]) -> Any:
    body = encode_request(api_key, version, build(message_class("request", api_key, version), values))
    client.send(request_frame(api_key, version, 7, "test", body))
    frame = memoryview(await client.frame())
    _, position = parse_response_header(frame, api_key, version)
    return decode_response(api_key, version, frame, position)


async def produced(client: Client, topic_id: UUID) -> int:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"value")])
    data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch}]}]
    answer = await ask(client, PRODUCE, 13, {"acks": -1, "timeout": 1_000, "topic_data": data})
    return int(answer.responses[0].partition_responses[0].error_code)


async def fetched(client: Client, topic_id: UUID) -> tuple[int, bool]:
    """The error, and whether there are records."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000, "current_leader_epoch": -1}
    wanted |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    values = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 10_000, "session_epoch": -1}
    topics = [{"topic_id": topic_id, "partitions": [wanted]}]
    answer = await ask(client, FETCH, 13, values | {"topics": topics})
    (one,) = answer.responses[0].partitions
    return int(one.error_code), bool(one.records)


async def made(admin: Client) -> UUID:
    topic = {"name": "secret", "num_partitions": 1, "replication_factor": 1}
    answer = await ask(admin, CREATE_TOPICS, 7, {"topics": [topic], "timeout": 5_000})
    assert not answer.topics[0].error_code
    return UUID(str(answer.topics[0].topic_id))


def test_who_may_not_read_or_write_a_topic_does_neither_by_its_id_while_it_goes() -> None:
    async def scene(stage: Stage) -> None:
        admin, alice = await stage.client(port=ADMIN_PORT), await stage.client()
        assert not (await alice.log_in("PLAIN")).error_code
        topic_id = await made(admin)
        assert await produced(admin, topic_id) == 0
        assert await produced(alice, topic_id) == DENIED and await fetched(alice, topic_id) == (DENIED, False)
        # The image forgets a topic before its log is closed.
        del stage.broker.image.topic_by_id[topic_id]
        assert topic_id.bytes in stage.broker.partitions_of
        (partition,) = stage.broker.partitions_of[topic_id.bytes].values()
        assert await produced(alice, topic_id) == UNKNOWN
        assert await fetched(alice, topic_id) == (UNKNOWN, False)
        assert partition.log.next_offset == 1

    played(scene, **SETTINGS)
