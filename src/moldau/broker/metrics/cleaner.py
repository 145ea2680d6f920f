"""What the log cleaner tells of itself in /metrics."""

from __future__ import annotations

from moldau.broker.metrics.text import Samples, plain
from moldau.log.cleaner.cleaner import LogCleaner


def cleaner_samples(cleaner: LogCleaner) -> Samples:
    counts = cleaner.counts
    yield plain("moldau_cleaner_compactions_total", counts.compactions)
    yield plain("moldau_cleaner_failures_total", counts.failures)
    yield plain("moldau_cleaner_removed_records_total", counts.records_removed)
    yield plain("moldau_cleaner_removed_bytes_total", counts.bytes_removed)
    yield plain("moldau_cleaner_read_bytes_total", counts.bytes_read)
    yield plain("moldau_cleaner_written_bytes_total", counts.bytes_written)
    yield plain("moldau_cleaner_seconds_total", counts.seconds)
    yield plain("moldau_cleaner_running", cleaner.running)
    yield plain("moldau_cleaner_dirtiest_ratio", counts.dirtiest_ratio)
    yield plain("moldau_cleaner_uncleanable_partitions", len(cleaner.uncleanable))
