"""What a broker counts. Plain integers on the data path; the text that Prometheus reads is made only when asked.

Names follow Prometheus' conventions (base units, `_total` for counters). See `exposition` for the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Metrics:
    bytes_in: int = 0
    bytes_out: int = 0
    connections_opened: int = 0
    connections_closed: int = 0
    connections_held_back: int = 0
    malformed_requests: int = 0
    unsupported_requests: int = 0
    produced_batches: int = 0
    produced_bytes: int = 0
    produced_messages: int = 0
    produce_refused: int = 0
    fetched_bytes: int = 0
    fetches_parked: int = 0
    cold_reads: int = 0
    flushes: int = 0
    read_errors: int = 0
    requests: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    kind: str
    help: str
    values: tuple[tuple[str, float], ...]  # label text ('' or 'api="Fetch"') and value


def counters(metrics: Metrics) -> Iterator[Sample]:
    plain = (
        ("bytes_in", "moldau_network_received_bytes_total", "Bytes received from clients."),
        ("bytes_out", "moldau_network_sent_bytes_total", "Bytes sent to clients."),
        ("connections_opened", "moldau_connections_opened_total", "Connections accepted."),
        ("connections_closed", "moldau_connections_closed_total", "Connections ended."),
        (
            "connections_held_back",
            "moldau_connections_held_back_total",
            "Connections that waited for max.connections.",
        ),
        ("malformed_requests", "moldau_malformed_requests_total", "Requests that could not be read."),
        (
            "unsupported_requests",
            "moldau_unsupported_requests_total",
            "Requests of an API or version not served.",
        ),
        ("produced_batches", "moldau_produced_batches_total", "Record batches appended."),
        ("produced_bytes", "moldau_produced_bytes_total", "Bytes of record batches appended."),
        ("produced_messages", "moldau_produced_messages_total", "Messages appended."),
        ("produce_refused", "moldau_produce_refused_total", "Record batches refused with an error."),
        ("fetched_bytes", "moldau_fetched_bytes_total", "Bytes of record batches sent to readers."),
        ("fetches_parked", "moldau_fetches_parked_total", "Fetches that waited for data."),
        ("cold_reads", "moldau_cold_reads_total", "Reads that had to wait for the disk."),
        ("flushes", "moldau_flushes_total", "Appends that were acknowledged only after a sync of their log."),
        ("read_errors", "moldau_read_errors_total", "Reads that a disk failed."),
    )
    for attribute, name, text in plain:
        yield Sample(name, "counter", text, (("", getattr(metrics, attribute)),))
    yield Sample(
        "moldau_requests_total",
        "counter",
        "Requests served, by API.",
        tuple((f'api="{api}"', count) for api, count in sorted(metrics.requests.items())),
    )


def exposition(samples: Iterator[Sample]) -> str:
    """Prometheus' text format."""
    lines: list[str] = []
    for sample in samples:
        lines.append(f"# HELP {sample.name} {sample.help}")
        lines.append(f"# TYPE {sample.name} {sample.kind}")
        for labels, value in sample.values:
            label = f"{{{labels}}}" if labels else ""
            lines.append(f"{sample.name}{label} {_number(value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
