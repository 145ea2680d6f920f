"""Fixtures for the tests of projects that use Kafka: a cluster in the process of the tests."""
