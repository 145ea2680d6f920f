"""Why a folder is not imported: a sentence for people, and what they can do."""

from __future__ import annotations


class ImportRefused(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
