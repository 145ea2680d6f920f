"""Moldau: a partitioned, replicated commit log, wire- and file-compatible with Apache Kafka."""

__version__ = "0.1.0"
