"""Kafka's error codes, and the one exception that carries one of them with its message.

A protocol outcome is an error code per topic or partition. `KafkaError` is for code that decides such an outcome some
calls below the handler; the handler turns it into the answer's fields. It never crosses a connection.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
