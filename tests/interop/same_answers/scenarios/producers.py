"""InitProducerId and DescribeProducers, without transactions."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..conversation import Conversation, scenario
from .produce import produce, producers_in_order


@scenario("InitProducerId", "idempotent")
def init_producer_id(talk: Conversation) -> None:
    for timeout_ms in 60_000, 0, -1, 2**31 - 1:
        request = {"transactional_id": None, "transaction_timeout": timeout_ms}
        talk.ask(f"with a time-out of {timeout_ms} ms", request, adjust=_given)
    for producer_id, epoch in (5, 0), (5, -1), (-1, 5), (-5, -5), (-1, -1):
        request = {"transactional_id": None, "producer_id": producer_id, "producer_epoch": epoch}
        talk.ask(f"again as {producer_id}, {epoch}", request, adjust=_given)
    request = {"transactional_id": "", "transaction_timeout": 60_000}
    talk.ask("an empty transactional id", request, adjust=_given)


def _given(tree: Any) -> Any:
    """Each cluster counts its own ids."""
    return tree | {"producer_id": "<an id>" if tree["producer_id"] >= 0 else tree["producer_id"]}


@scenario("DescribeProducers", "producers")
def describe_producers(talk: Conversation) -> None:
    name, missing = talk.topic("topic", 3), talk.name("missing")
    for producer, partition in (7001, 0), (7002, 0), (7001, 1):
        ids = {"producer_id": producer, "producer_epoch": 3, "base_sequence": 0}
        produce(talk, "filling", (name, [(partition, batch(b"a", b"b", **ids))]), version=9)
    produce(talk, "filling without a producer", (name, [(2, batch(b"a"))]), version=9)

    def ask(case: str, *topics: tuple[str, list[int]]) -> None:
        wanted = [{"name": topic, "partition_indexes": indexes} for topic, indexes in topics]
        talk.ask(case, {"topics": wanted}, adjust=producers_in_order)

    ask("all", (name, [0, 1, 2]))
    ask("missing ones", (name, [0, 9, -1]), (missing, [0]))
    ask("an invalid topic", ("no spaces", [0]))
    ask("an empty name", ("", [0]))
    ask("twice", (name, [0, 0]), (name, [0]))
    ask("none")
    ask("no partitions", (name, []))
