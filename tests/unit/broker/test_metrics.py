"""What a scrape reads."""

from __future__ import annotations

from moldau.broker.metrics import Metrics, counters, exposition


def test_large_counters_are_written_to_the_last_digit_with_and_without_labels() -> None:
    metrics = Metrics(bytes_in=12_345_678_901, requests={"Fetch": 1_234_567})
    lines = exposition(counters(metrics)).splitlines()
    assert "moldau_network_received_bytes_total 12345678901" in lines
    assert 'moldau_requests_total{api="Fetch"} 1234567' in lines
