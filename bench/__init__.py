"""Measurements: Moldau and Apache Kafka side by side, with the same clients.

`python -m bench` runs them and writes docs/benchmarks.md. The helpers below are shared with the tests that need a
broker as a process (`server`) or Apache Kafka's jars (`apache_kafka`). No part of the wheel: what users install does
not import it. It uses sockets, clocks and processes directly. No test depends on a time measured here.
"""
