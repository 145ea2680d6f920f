"""The streaming tables that run in this session: each a flow as a pipeline's, started again when it fails.

They run until they are stopped or the session ends, looked after by a thread. What happens to them is kept as lines
(the last LINES_MAX) for who asks: a prompt shows them when it comes back, a script as they come.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from moldau.spark.pipeline.declared import Flow
from moldau.spark.pipeline.flows import Starter
from moldau.spark.pipeline.graph import Built, Graph
from moldau.spark.pipeline.progress import FlowProgress, State
from moldau.spark.pipeline.runner import ENDED, GRACE_S, LOOK_S, Listener, StreamRun
from moldau.spark.pipeline.tables import Tables
from moldau.spark.sql.binding import Bound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES_MAX = 100


@dataclass(frozen=True)
class Streaming:
    """A streaming table as it was created."""

    built: Built
    bound: Bound
    sink: Mapping[str, str]
    """Of a topic: the sink's options; empty for a table in the lake."""
    key: str | None = None
    """Of a topic: the column that is the records' key."""


class AsBuilt:
    """In the place of a graph: a query that was analysed once is started again as it is."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def rebuilt(self, flow: Flow) -> DataFrame:
        return self._frame


class Streams:
    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._tables = tables
        self._starter = Starter(spark, tables, once=False)
        self._lock = threading.RLock()
        self._runs: dict[str, StreamRun] = {}
        self._created: dict[str, Streaming] = {}
        self._reports: dict[str, Any] = {}
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None

    def start(self, created: Streaming) -> None:
        """Run it; an error where Spark refuses it at once."""
        built = created.built
        name = built.output.name
        run = StreamRun(built, cast(Graph, AsBuilt(built.frame)), self._starter, self)
        with self._lock:
            self._listen()
            self._reports[name] = run.report
            self._runs[name], self._created[name] = run, created
            run.step(time.monotonic())
        if self._thread is None:
            self._thread = threading.Thread(target=self._look_after, name="moldau-sql-streams", daemon=True)
            self._thread.start()

    def stop(self, name: str) -> None:
        """After the batch that is under way, if that ends in time."""
        with self._lock:
            run = self._runs[name]
            deadline = time.monotonic() + GRACE_S
            while not run.stop(time.monotonic() < deadline):
                time.sleep(LOOK_S)
            if run.progress.state not in ENDED:
                run.ended(State.STOPPED, "is stopped")

    def close(self) -> None:
        self._ended.set()
        for name in self.running():
            self.stop(name)
        if self._thread is not None:
            self._thread.join(GRACE_S)
        if self._listener is not None:
            self._spark.streams.removeListener(self._listener)
            self._listener = None

    def forget(self, name: str) -> None:
        with self._lock:
            del self._runs[name], self._created[name], self._reports[name]

    def created(self) -> dict[str, Streaming]:
        return dict(self._created)

    def find(self, name: str) -> str | None:
        """A name as it was created, whatever its case."""
        return next((one for one in self._created if one.casefold() == name.casefold()), None)

    def running(self) -> list[str]:
        return [name for name, run in self._runs.items() if run.progress.state not in ENDED]

    @property
    def flows(self) -> list[FlowProgress]:
        return [run.progress for run in self._runs.values()]

    def news(self) -> list[str]:
        """What has happened since the last time that this was asked."""
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        return lines

    def happened(self, flow: FlowProgress, text: str) -> None:
        self._lines.append(f"{flow.flow} {text}")

    def look(self, flows: Sequence[FlowProgress]) -> None:
        """Nothing to draw."""

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = Listener(self._reports, threading.Event())
            self._spark.streams.addListener(self._listener)

    def _look_after(self) -> None:
        self._starter.enter_thread()
        while not self._ended.wait(LOOK_S):
            with self._lock:
                for run in self._runs.values():
                    if run.progress.state not in ENDED:
                        run.step(time.monotonic())
