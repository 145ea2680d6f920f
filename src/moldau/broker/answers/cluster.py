"""The answers of the APIs between brokers and their controller."""

from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode


class EnvelopeResponse(NamedTuple):
    response_data: bytes | None
    error_code: ErrorCode = ErrorCode.none


class AlteredPartition(NamedTuple):
    partition_index: int
    error_code: ErrorCode
    leader_id: int = 0
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class AlteredTopic(NamedTuple):
    topic_id: UUID
    partitions: tuple[AlteredPartition, ...]


class AlterPartitionResponse(NamedTuple):
    error_code: ErrorCode
    topics: tuple[AlteredTopic, ...] = ()
    throttle_time: int = 0


class BrokerHeartbeatResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    throttle_time: int = 0


class UnregisterBrokerResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    throttle_time: int = 0


class AllocateProducerIdsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    producer_id_start: int = 0
    producer_id_len: int = 0
    throttle_time: int = 0
