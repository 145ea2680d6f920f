"""A run's flows for Prometheus: `GET /metrics` on a port of its own, in the text format 0.0.4."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from moldau.spark.pipeline.progress import FlowProgress, State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_S_MAX = 10.0

Reading = Callable[[FlowProgress], float | None]
METRICS: tuple[tuple[str, str, str, Reading], ...] = (
    ("flow_running", "gauge", "1 while the flow's query runs.", lambda f: float(f.state is State.RUNNING)),
    ("flow_batches_total", "counter", "Batches done since the run began.", lambda f: f.batches),
    ("flow_rows_total", "counter", "Rows read since the run began.", lambda f: f.rows),
    ("flow_rows_per_second", "gauge", "Rows coming in, by the last batch.", lambda f: f.rows_per_s),
    ("flow_batch_seconds", "gauge", "How long the last batch took.", lambda f: f.batch_ms / 1000),
    ("flow_lag_records", "gauge", "Records of its topics that it has not read.", lambda f: f.lag),
    ("flow_state_rows", "gauge", "Rows in the state of windows and joins.", lambda f: f.state_rows),
    ("flow_state_bytes", "gauge", "Memory of that state.", lambda f: f.state_bytes),
    ("flow_restarts_total", "counter", "Starts after a failure.", lambda f: f.restarts),
)


def exposition(pipeline: str, flows: Sequence[FlowProgress]) -> str:
    return "".join(line + "\n" for line in lines(pipeline, flows))


def lines(pipeline: str, flows: Sequence[FlowProgress]) -> Iterable[str]:
    for name, kind, text, read in METRICS:
        full = f"moldau_pipeline_{name}"
        yield f"# HELP {full} {text}"
        yield f"# TYPE {full} {kind}"
        for flow in flows:
            value = read(flow)
            if value is not None:
                yield f"{full}{{{labels(pipeline, flow)}}} {value:g}"


def labels(pipeline: str, flow: FlowProgress) -> str:
    pairs = (("pipeline", pipeline), ("flow", flow.flow), ("target", flow.target))
    return ",".join(f'{key}="{escaped(value)}"' for key, value in pairs)


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class MetricsServer:
    """Answers until it is closed; `port` is the one that it got where 0 was asked for."""

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        self._server = ThreadingHTTPServer((host, port), handler(text))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S_MAX

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a scrape every few seconds is no news."""

    return Handler
