"""What a task reads, and how: plain values that Spark pickles on the driver and the executors unpickle.

The driver's side parses and checks options; what stands here is already decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    import pyarrow

TIMEOUT_MS = 120_000
"""How long a range may make no progress: what Spark's connector takes from `spark.network.timeout`."""


@dataclass(frozen=True, slots=True)
class Split:
    """A range of offsets of one partition. It ends by position: whether records stand at its offsets does not matter.

    With a topic id, records of a topic that was deleted and created anew are refused, not taken for the old one's.
    `from_earliest`: what retention has taken of it since is not missed. `to_latest`: it goes on to where the log ends
    when the reading starts.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    topic_id: UUID | None = None
    from_earliest: bool = False
    to_latest: bool = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.first_offset} to {self.next_offset}"


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`schema` has the wanted columns in their order, as `to_arrow_schema(schema, timezone="UTC")` makes it:
    some of key, value, topic, partition, offset, timestamp, timestampType, headers.

    `client_config` is librdkafka's, as `client_options.client_config` makes it of the options `kafka.*`.
    """

    bootstrap_servers: str
    schema: pyarrow.Schema
    client_config: Mapping[str, str] = field(default_factory=dict, repr=False)
    read_committed: bool = False
    fail_on_data_loss: bool = True
    timeout_ms: int = TIMEOUT_MS
