"""`moldau message consume --group`: read as a member of a consumer group, and commit what was printed.

It goes on where the group is, shares the partitions with its other members, and commits after each piece of output:
what it printed last may come again after a crash, nothing is left out. Without `--follow` it ends when it has caught up
with every partition that it was given.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.cli.client import Connection
from moldau.cli.errors import CliError, usage
from moldau.cli.message_read import Place
from moldau.cli.offsets import Kind, parse_position

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

BATCH_MAX = 500
WAIT_S = 0.25  # also the longest time until Ctrl-C is noticed
RESETS = {Kind.BEGINNING: "earliest", Kind.END: "latest"}


def reset_policy(start: str) -> str:
    """Where a group begins that has no offsets: `--from` can say no more than that."""
    policy = RESETS.get(parse_position(start).kind)
    if policy is None:
        raise usage(
            "With --group, --from can be beginning or end: where a group begins that has no offsets yet.",
            "`moldau group reset` lets a group go on from any other place.",
        )
    return policy


class GroupReader:
    """A member of the group while it lasts; `close` leaves it."""

    def __init__(self, connection: Connection, topics: Sequence[str], group: str, reset: str) -> None:
        for topic in topics:
            connection.topic(topic)
        self._connection = connection
        self.consumer: Consumer = connection.consumer(group_id=group, auto_offset_reset=reset)
        self._unread: set[Place] | None = (
            None  # partitions whose end was not reached; None before the assignment
        )
        self.consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _consumer: Consumer, places: list[Any]) -> None:
        self._unread = (self._unread or set()) | {(place.topic, place.partition) for place in places}

    def _on_revoke(self, _consumer: Consumer, places: list[Any]) -> None:
        self._unread = (self._unread or set()) - {(place.topic, place.partition) for place in places}

    def messages(self, count: int | None, *, follow: bool) -> Iterator[list[Message]]:
        """Pieces of what comes in, each committed after the caller has dealt with it."""
        remaining = count
        waiting_since = time.monotonic()
        while remaining != 0 and (follow or self._unread is None or self._unread):
            received = self._receive(remaining)
            fresh = [message for message in received if not self._is_end(message)]
            if remaining is not None:
                remaining -= len(fresh)
            if fresh:
                yield fresh
                self._commit(fresh)
            if received:
                waiting_since = time.monotonic()
            elif not follow and time.monotonic() - waiting_since > self._connection.target.timeout_s:
                raise self._nobody_coordinates() or self._connection.silent()

    def _receive(self, limit: int | None) -> list[Message]:
        size = BATCH_MAX if limit is None else max(1, min(BATCH_MAX, limit))
        messages: list[Message] = self.consumer.consume(size, 0)
        return messages or self.consumer.consume(1, WAIT_S)

    def _is_end(self, message: Message) -> bool:
        """Whether it is no message but the news that a partition's end was reached."""
        from confluent_kafka import KafkaError

        failure = message.error()
        if failure is None:
            return False
        if failure.code() in (
            KafkaError.INVALID_REPLICATION_FACTOR,
            KafkaError._FATAL,
        ):  # of the topic of groups
            raise self._nobody_coordinates() or self._connection.explain(failure)
        if failure.code() != KafkaError._PARTITION_EOF:
            raise self._connection.explain(failure, subject=message.topic() or "")
        if self._unread is not None:
            self._unread.discard((message.topic() or "", message.partition() or 0))
        return True

    def _commit(self, messages: list[Message]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        places = [TopicPartition(*place, offset) for place, offset in ends.items()]
        try:
            self.consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise self._connection.explain(error.args[0], subject=messages[0].topic() or "") from error

    def _nobody_coordinates(self) -> CliError | None:
        from moldau.cli.shortages import why_nobody_coordinates

        return why_nobody_coordinates(self._connection, CONSUMER_OFFSETS)

    def close(self) -> None:
        self.consumer.close()
