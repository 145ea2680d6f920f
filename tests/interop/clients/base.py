"""What every adapter offers. What a client cannot do is a class attribute set to False, never a skip."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .security import MECHANISMS, OPEN, Security

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 20


@dataclass(frozen=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    """None leaves it to the client, which takes the time of sending."""


@dataclass(frozen=True)
class Received(Message):
    offset: int = -1


class Refused(Exception):
    """The broker's error, as the client shows it: Kafka's code and the message that came with it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Client(ABC):
    name: ClassVar[str]
    chooses_partitions: ClassVar[bool] = True
    sets_timestamps: ClassVar[bool] = True
    carries_any_bytes: ClassVar[bool] = True
    sends_nulls_only: ClassVar[bool] = True
    """A message with neither a key nor a value."""
    administers: ClassVar[bool] = True
    checks_configs_itself: ClassVar[bool] = False
    """It refuses a bad topic before it asks the broker."""
    alters_incrementally: ClassVar[bool] = True
    replaces_configs: ClassVar[bool] = True
    transacts: ClassVar[bool] = True
    mechanisms: ClassVar[Sequence[str]] = MECHANISMS
    """Of SASL."""

    def __init__(self, bootstrap_servers: str, security: Security = OPEN) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.security = security

    @abstractmethod
    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        """Send with acks=all, in order, and return when all are acknowledged; Refused where one was not."""

    @abstractmethod
    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        """`count` messages from an offset on, from a partition assigned by hand."""

    @abstractmethod
    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The first offset and the next one to be given."""

    @abstractmethod
    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int:
        """The first offset whose timestamp is at or after a time; the next offset where there is none."""

    @abstractmethod
    def topics(self) -> dict[str, int]:
        """The topics, with their numbers of partitions."""

    @abstractmethod
    def read_in_group(self, topic: str, group: str, count: int) -> list[bytes | None]:
        """So many values of a topic from its beginning, as a group's only member, which commits."""

    def transact(self, topic: str, values: Sequence[bytes], transactional_id: str) -> None:
        """Produce in one transaction, and commit it."""
        raise NotImplementedError

    def create(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        raise NotImplementedError

    def delete(self, topic: str) -> None:
        raise NotImplementedError

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        raise NotImplementedError

    def alter_configs(self, topic: str, *, put: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        """IncrementalAlterConfigs: what is not named stays as it is."""
        raise NotImplementedError

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """AlterConfigs: what is not named goes back to its default."""
        raise NotImplementedError
