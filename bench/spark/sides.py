"""Who is compared: Spark's own connector as it is and tuned, and our source in its variants.

All of them read the same topic in the same session. Without numba our source runs under a format of its own, so that it
takes its turn beside the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TUNED_OPTIONS: Final = {
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": "-1",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(8 << 20),
}
PLAIN_FORMAT: Final = "moldau_plain"


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def read(self, spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
        """A batch query over all of a topic."""
        return self._options(spark.read, bootstrap, topic).load()

    def read_stream(self, spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
        return self._options(spark.readStream, bootstrap, topic).options(**options).load()

    def _options(self, reader: Any, bootstrap: str, topic: str) -> Any:
        named = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **self.options}
        return reader.format(self.format).options(**named)


DEFAULT: Final = Side("connector", "kafka")
TUNED: Final = Side("connector, tuned", "kafka", TUNED_OPTIONS)
ALL: Final = Side("Moldau", "moldau")
VALUE: Final = Side("Moldau, `columns=value`", "moldau", {"columns": "value"})
OFFSET: Final = Side("Moldau, `columns=offset`", "moldau", {"columns": "offset"})
PLAIN: Final = Side("Moldau without numba", PLAIN_FORMAT)


def register_plain(spark: SparkSession) -> None:
    """Our source with the decoder that it falls back to."""
    from bench.spark.plain_source import PlainDataSource

    spark.dataSource.register(PlainDataSource)


def in_turn(sides: tuple[Side, ...], number: int) -> Iterator[Side]:
    """Another one begins in each run: none is always the first after a change."""
    start = number % len(sides)
    yield from sides[start:] + sides[:start]
