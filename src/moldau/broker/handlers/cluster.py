"""Moldau's own API between brokers and their controller (`wire.cluster`): follow the cluster, register.

- v0: between brokers of one release

FEED: the deltas behind a position, waiting for one where there is none; a snapshot where they are not kept any more.
The position also says how far the broker has come; one that acts on many changes, and asks for none meanwhile, says
that it is busy, so that it does not count as silent. REGISTER: a broker begins a life in the cluster; it is fenced
until it asks to serve (BrokerHeartbeat). REPORT: a partition's disk has failed on a broker that goes on, or is there
again. All of them only where the controller is; else NOT_CONTROLLER.
"""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.channel import registration_from
from moldau.broker.connection import Connection
from moldau.broker.guard import may
from moldau.broker.interface import ControllerBroker
from moldau.broker.slot import Answer, Slot
from moldau.controller.controller import Controller
from moldau.controller.delta_log import TooManyWait
from moldau.metadata.codec import encoded
from moldau.metadata.records import Delta, Position
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.cluster import (
    CLUSTER_KEY,
    CLUSTER_VERSION,
    FEED,
    REGISTER,
    REPORT,
    kind_of,
    pack_answer,
    parse_request,
    registration_body,
    registration_pieces,
)
from moldau.wire.frames import WireError, response_frame

API_KEY = CLUSTER_KEY
NAME = "Cluster"
VERSIONS = (0, 0)
IS_INTERNAL = True

BETWEEN_BROKERS = right("Cluster", Operation.CLUSTER_ACTION, Resource.CLUSTER)

WAIT_MS_MAX = 30_000


def serve(
    broker: ControllerBroker,
    connection: Connection,
    frame: memoryview,
    position: int,
    version: int,
    correlation_id: int,
) -> Answer | None:
    kind = kind_of(frame, position)
    if kind not in KINDS and kind != REGISTER:
        raise WireError(f"a request of kind {kind} to the controller")
    if not may(broker, connection, BETWEEN_BROKERS):
        denied = pack_answer({"error": int(BETWEEN_BROKERS.error)})
        return response_frame(CLUSTER_KEY, CLUSTER_VERSION, correlation_id, denied)
    if kind == REGISTER:
        body = registration_body(frame, position)
        slot, work = connection.park(held_bytes=len(body)), _register(broker, body)
    else:
        value = parse_request(frame, position)
        slot, work = connection.park(), KINDS[kind](broker, value)
    broker.runtime.tasks.spawn(_fill(slot, correlation_id, work), name="cluster")
    return None


async def _fill(slot: Slot, correlation_id: int, work: Any) -> None:
    try:
        body = await work
    except (WireError, KeyError, ValueError, TypeError, AttributeError, IndexError):
        slot.abandon("a broker's message makes no sense")
        return
    except TooManyWait:
        slot.abandon("too many follow the cluster")
        return
    slot.fill(response_frame(CLUSTER_KEY, CLUSTER_VERSION, correlation_id, body))


async def _feed(broker: ControllerBroker, value: dict[str, Any]) -> bytes:
    controller = broker.active_controller
    if controller is None:
        return pack_answer({"error": int(ErrorCode.not_controller)})
    broker.office.note_seen(int(value["broker"]))
    if value.get("busy"):
        return pack_answer({"error": 0, "deltas": ()})
    position = Position(*(int(part) for part in value["position"]))
    controller.applied(int(value["broker"]), position)
    deltas = controller.deltas.since(position)
    if deltas is not None and not deltas:
        await _until_delta(broker, controller, min(int(value["wait_ms"]), WAIT_MS_MAX))
        if broker.active_controller is not controller:
            return pack_answer({"error": int(ErrorCode.not_controller)})
        deltas = controller.deltas.since(position)
    if deltas is None:
        return await _snapshot(broker, controller)
    return await _deltas(broker, controller, deltas)


async def _until_delta(broker: ControllerBroker, controller: Controller, wait_ms: int) -> None:
    waiting = controller.deltas.next_delta()

    def give_up() -> None:
        if not waiting.done():
            waiting.set_result(None)

    timer = broker.runtime.tasks.call_later(wait_ms / 1000, give_up)
    try:
        await waiting
    finally:
        timer.cancel()


async def _deltas(broker: ControllerBroker, controller: Controller, deltas: list[Delta]) -> bytes:
    pieces: list[bytes] = []
    heads = []
    for delta in deltas:
        before = len(pieces)
        for piece in controller.deltas.encoded(delta):
            pieces.append(piece)
            if len(pieces) % 4 == 0:
                await broker.runtime.tasks.sleep(0)
        heads.append((delta.epoch, delta.sequence, len(pieces) - before))
    return pack_answer({"error": 0, "deltas": heads}, pieces)


async def _snapshot(broker: ControllerBroker, controller: Controller) -> bytes:
    snapshot = controller.snapshot()
    pieces = []
    for piece in encoded(snapshot.records):
        pieces.append(piece)
        await broker.runtime.tasks.sleep(0)
    return pack_answer({"error": 0, "snapshot": snapshot.position, "cluster_id": snapshot.cluster_id}, pieces)


async def _register(broker: ControllerBroker, body: bytes) -> bytes:
    pieces = registration_pieces(body)
    value = next(pieces, None)
    if not isinstance(value, dict):
        raise WireError("a registration without a value")
    lost: list[TopicPartition] = []
    for piece in pieces:
        lost += [TopicPartition(str(name), int(index)) for name, index in piece]
        await broker.runtime.tasks.sleep(0)
    controller = broker.active_controller
    if controller is None:
        return pack_answer({"error": int(ErrorCode.not_controller)})
    registration = registration_from(value, lost)
    try:
        epoch = await controller.register_broker(registration)
    except KafkaError as error:
        return pack_answer({"error": int(error.code), "message": error.message})
    return pack_answer({"error": 0, "epoch": epoch})


async def _report(broker: ControllerBroker, value: dict[str, Any]) -> bytes:
    controller = broker.active_controller
    if controller is None:
        return pack_answer({"error": int(ErrorCode.not_controller)})
    name, index = value["place"]
    places = [TopicPartition(str(name), int(index))]
    offline, online = (places, []) if value["is_offline"] else ([], places)
    try:
        await controller.report_replicas(
            int(value["broker"]), int(value["epoch"]), offline=offline, online=online
        )
    except KafkaError as error:
        return pack_answer({"error": int(error.code), "message": error.message})
    return pack_answer({"error": 0})


KINDS = {FEED: _feed, REPORT: _report}
