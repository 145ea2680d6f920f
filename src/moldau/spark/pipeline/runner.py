"""Runs the flows of a project: starts them in order, restarts the failed, shows what they do, stops them cleanly.

For ever, every flow runs at once, and one that fails is started again after a pause that grows, while the others go
on. Once, a flow starts when those that write what it reads have caught up, and the run ends when all have; one that
fails three times in a row is given up, and what depends on it is skipped.

A stop lets the batches that are under way end, for some time, and then ends the queries: what a batch had not
committed is done again at the next start. Nothing here prints; `Watcher` hears of what happens.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming import StreamingQueryListener

from moldau.spark.pipeline.declared import Kind, Mistake
from moldau.spark.pipeline.flows import REAL_TIME_S, RECOMPUTE_S, Starter, interval_s, is_real_time
from moldau.spark.pipeline.graph import Broken, Built, Graph
from moldau.spark.pipeline.progress import FlowProgress, State, is_batch
from moldau.spark.pipeline.restarts import Restarts
from moldau.spark.pipeline.sentences import sentence
from moldau.spark.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_S = 0.2
GRACE_S = 30.0
"""How long a stop waits for the batches that are under way."""
ENDED = (State.DONE, State.FAILED, State.SKIPPED, State.STOPPED)


class Watcher(Protocol):
    """Hears of what happens; called from the run's own thread."""

    def happened(self, flow: FlowProgress, text: str) -> None: ...

    def look(self, flows: Sequence[FlowProgress]) -> None: ...


class FlowRun(ABC):
    """One flow of a run, whatever it is carried out by."""

    def __init__(self, built: Built, graph: Graph, starter: Starter, watcher: Watcher) -> None:
        self.built = built
        self.progress = FlowProgress(
            built.flow.name, built.output.name, built.output.kind.value, str(built.flow.place)
        )
        self.restarts = Restarts()
        self._graph = graph
        self._starter = starter
        self._watcher = watcher
        self._due = 0.0

    def step(self, now: float) -> None:
        """Look at it, and start it where that is due."""
        progress = self.progress
        progress.count_rate(now)
        if progress.state is State.RUNNING:
            self.look_after(now)
        elif progress.state is State.WAITING or (progress.state is State.RESTARTING and now >= self._due):
            self._start(now)
        if progress.state is State.RESTARTING:
            progress.restart_in_s = max(0.0, self._due - now)

    def _start(self, now: float) -> None:
        again = self.progress.state is State.RESTARTING
        try:
            self.begin(now)
        except Exception as error:
            self.failed(now, reason_of(error))
        else:
            self.progress.state = State.RUNNING
            self.progress.restart_in_s = 0.0
            self._watcher.happened(self.progress, "is started again" if again else "is started")

    def failed(self, now: float, reason: str) -> None:
        pause = self.restarts.failed()
        self.progress.error = reason
        if self.restarts.has_given_up(self.is_once):
            self.progress.state = State.FAILED
            self._watcher.happened(self.progress, f"has failed {self.restarts.failures} times: {reason}")
            return
        self.progress.restarts = self.restarts.total
        self.progress.state = State.RESTARTING
        self._due = now + pause
        self._watcher.happened(self.progress, f"failed, and is started again in {pause:g} s: {reason}")

    def ended(self, state: State, text: str) -> None:
        self.progress.state = state
        self.progress.rows_per_s = self.progress.restart_in_s = 0.0
        self._watcher.happened(self.progress, text)

    @property
    def is_once(self) -> bool:
        return self._starter.once

    @abstractmethod
    def begin(self, now: float) -> None: ...

    @abstractmethod
    def look_after(self, now: float) -> None: ...

    @abstractmethod
    def stop(self, waiting: bool) -> bool:
        """End it, unless that would break a batch off and there is time to wait; whether it has ended."""


class StreamRun(FlowRun):
    """A flow that is a streaming query."""

    _query: StreamingQuery | None = None
    _batches_at_stop: int | None = None
    _last_batch = -1

    def __init__(self, built: Built, graph: Graph, starter: Starter, watcher: Watcher) -> None:
        super().__init__(built, graph, starter, watcher)
        self._reporting = threading.Lock()

    def begin(self, now: float) -> None:
        frame = self._graph.rebuilt(self.built.flow)
        self._query = self._starter.start(self.built.flow, self.built.output, frame)

    def report(self, text: str) -> None:
        """Spark's progress, from the listener's thread."""
        report = json.loads(text)
        with self._reporting:
            if is_batch(report):
                if report["batchId"] <= self._last_batch:
                    return
                self._last_batch = report["batchId"]
                self.restarts.batch_done()
            self.progress.take(report, time.monotonic())

    def _take_the_rest(self) -> None:
        """Of a query that has ended: what the listener has not told, and never may."""
        assert self._query is not None
        for report in self._query.recentProgress:
            self.report(report.json)

    def look_after(self, now: float) -> None:
        assert self._query is not None
        if self._query.isActive:
            return
        error = self._query.exception()
        self._take_the_rest()
        if error is not None:
            self.failed(now, reason_of(error))
        elif self.is_once:
            self.progress.error = None
            self.ended(State.DONE, "has caught up")
        else:
            self.failed(now, "its query was ended by something else.")

    def stop(self, waiting: bool) -> bool:
        query = self._query
        if self.progress.state is not State.RUNNING or query is None or not query.isActive:
            return True
        if self._batches_at_stop is None:
            self._batches_at_stop = self.progress.batches
        is_between = self.progress.batches > self._batches_at_stop or not query.status["isTriggerActive"]
        if waiting and not is_between and self._batches_are_short():
            return False
        query.stop()
        self._take_the_rest()
        return True

    def _batches_are_short(self) -> bool:
        """One in Real-Time Mode lasts as long as it is said to; a stop need not wait for what it will not see."""
        flow = self.built.flow
        return not is_real_time(flow) or (interval_s(flow) or REAL_TIME_S) <= GRACE_S


class RecomputedRun(FlowRun):
    """A materialized view: computed in a thread when the tables that it reads have changed."""

    _thread: threading.Thread | None = None
    _error: Exception | None = None
    _seen: list[int | None] | None = None
    _next = 0.0

    def __init__(
        self, built: Built, graph: Graph, starter: Starter, watcher: Watcher, tables: Tables
    ) -> None:
        super().__init__(built, graph, starter, watcher)
        self._tables = tables
        self._interval_s = interval_s(built.flow) or RECOMPUTE_S

    def begin(self, now: float) -> None:
        self._seen = self._versions()
        self._error = None
        self._next = now + self._interval_s
        self._thread = threading.Thread(
            target=self._compute, name=f"recompute-{self.built.flow.name}", daemon=True
        )
        self._thread.start()

    def _versions(self) -> list[int | None]:
        return [self._tables.version(name) for name in self.built.reads]

    def _compute(self) -> None:
        began = time.monotonic()
        try:
            self._starter.enter_thread()
            frame = self._graph.rebuilt(self.built.flow)
            self._starter.recompute(self.built.flow, self.built.output, frame)
        except Exception as error:
            self._error = error
            return
        self.restarts.batch_done()
        self.progress.error = None
        self.progress.batches += 1
        self.progress.batch_ms = int((time.monotonic() - began) * 1000)

    def look_after(self, now: float) -> None:
        assert self._thread is not None
        if self._thread.is_alive():
            return
        if self._error is not None:
            self.failed(now, reason_of(self._error))
        elif self.is_once:
            self.ended(State.DONE, "is computed")
        elif now >= self._next:
            if not self.built.reads or self._versions() != self._seen:
                self.begin(now)
            else:
                self._next = now + self._interval_s

    def stop(self, waiting: bool) -> bool:
        if self._thread is None or not self._thread.is_alive():
            return True
        if not waiting:
            self._starter.cancel(self.built.flow)
            self._thread.join(GRACE_S)
        return not waiting


def reason_of(error: Exception) -> str:
    if isinstance(error, Mistake):
        return error.message
    return "what it reads is broken." if isinstance(error, Broken) else sentence(error)


class Runner:
    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        built: Sequence[Built],
        tables: Tables,
        once: bool,
        watcher: Watcher,
    ) -> None:
        self._spark = spark
        self._graph = graph
        self._tables = tables
        self._once = once
        self._watcher = watcher
        self._news = threading.Event()
        starter = Starter(spark, tables, once)
        self._runs = [
            RecomputedRun(one, graph, starter, watcher, tables)
            if one.output.kind is Kind.MATERIALIZED
            else StreamRun(one, graph, starter, watcher)
            for one in built
        ]

    @property
    def flows(self) -> list[FlowProgress]:
        return [run.progress for run in self._runs]

    @property
    def all_went_well(self) -> bool:
        return all(flow.state in (State.DONE, State.STOPPED) and flow.error is None for flow in self.flows)

    def run(self, stopping: threading.Event, at_once: threading.Event) -> bool:
        """Until `stopping` is set, or until all flows have caught up; whether all went well."""
        for run in self._runs:
            if run.built.output.is_stored:
                self._tables.create(run.built.output, self._graph.schema_of(run.built.output.name))
        reports = {run.built.flow.name: run.report for run in self._runs if isinstance(run, StreamRun)}
        listener = Listener(reports, self._news)
        self._spark.streams.addListener(listener)
        try:
            while not stopping.is_set() and not all(flow.state in ENDED for flow in self.flows):
                self._step()
                self._watcher.look(self.flows)
                stopping.wait(LOOK_S)
        finally:
            self._stop(at_once)
            self._spark.streams.removeListener(listener)
        self._watcher.look(self.flows)
        return self.all_went_well

    def _step(self) -> None:
        for run in self._runs:
            if self._once and run.progress.state is State.WAITING:
                before = [other for other in self._runs if other.built.output.name in run.built.reads]
                if any(other.progress.state in (State.FAILED, State.SKIPPED) for other in before):
                    run.progress.error = "what it reads has failed."
                    run.ended(State.SKIPPED, "is skipped: what it reads has failed")
                if not all(other.progress.state is State.DONE for other in before):
                    continue
            run.step(time.monotonic())

    def _stop(self, at_once: threading.Event) -> None:
        deadline = time.monotonic() + GRACE_S
        open_runs = [run for run in self._runs if run.progress.state not in ENDED]
        while open_runs:
            self._news.clear()
            waiting = not at_once.is_set() and time.monotonic() < deadline
            ended = [run for run in open_runs if run.stop(waiting)]
            for run in ended:
                run.ended(State.STOPPED, "is stopped")
            open_runs = [run for run in open_runs if run not in ended]
            self._watcher.look(self.flows)
            if open_runs:
                self._news.wait(LOOK_S)  # a query is best ended right after a batch


class Listener(StreamingQueryListener):
    """Hands Spark's progress reports to the flows, by the queries' names."""

    def __init__(self, reports: Mapping[str, Callable[[str], None]], news: threading.Event) -> None:
        self._reports = reports
        self._news = news

    def onQueryProgress(self, event: Any) -> None:
        report = self._reports.get(event.progress.name)
        if report is not None:
            report(event.progress.json)
            self._news.set()

    def onQueryStarted(self, event: Any) -> None:
        """The run starts its queries itself."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to tell."""

    def onQueryTerminated(self, event: Any) -> None:
        """Seen by looking at the query, which knows its error too."""
