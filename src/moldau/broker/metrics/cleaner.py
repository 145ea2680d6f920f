"""What the log cleaner tells of itself in /metrics."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.broker.metrics import Sample
from moldau.log.cleaner.cleaner import LogCleaner


def cleaner_samples(cleaner: LogCleaner) -> Iterator[Sample]:
    counts = cleaner.counts
    counters = (
        ("moldau_cleaner_compactions_total", "Logs compacted.", counts.compactions),
        ("moldau_cleaner_failures_total", "Compactions that failed.", counts.failures),
        ("moldau_cleaner_removed_records_total", "Records taken away.", counts.records_removed),
        ("moldau_cleaner_removed_bytes_total", "Bytes by which logs have shrunk.", counts.bytes_removed),
        ("moldau_cleaner_read_bytes_total", "Bytes read by compactions.", counts.bytes_read),
        ("moldau_cleaner_written_bytes_total", "Bytes written by compactions.", counts.bytes_written),
        ("moldau_cleaner_seconds_total", "Seconds that compactions took.", counts.seconds),
    )
    gauges = (
        ("moldau_cleaner_running", "Compactions under way.", cleaner.running),
        ("moldau_cleaner_dirtiest_ratio", "The largest dirty share at the last look.", counts.dirtiest_ratio),
        ("moldau_cleaner_uncleanable_partitions", "Logs left out after a failure.", len(cleaner.uncleanable)),
    )
    for name, text, value in counters:
        yield Sample(name, "counter", text, (("", value),))
    for name, text, value in gauges:
        yield Sample(name, "gauge", text, (("", value),))
