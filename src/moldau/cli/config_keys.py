"""Moldau's own table of config keys, as the command line needs it: names for suggestions, documentation for
people.
"""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def key_names(scope: str | None = None) -> frozenset[str]:
    """All names, or those of one scope."""
    return frozenset(key["name"] for key in documented_keys() if scope in (None, key["scope"]))


@functools.cache
def documented_keys() -> tuple[dict[str, Any], ...]:
    """Every key that is listed, as a document, ordered by name."""
    from moldau.config.key import Scope
    from moldau.config.table import KEYS

    documents = [
        {
            "name": key.name,
            "scope": key.scope.value,
            "type": key.type.name.lower(),
            "default": key.default,
            "allowed": key.check.allowed if key.check is not None else None,
            # Only a broker's settings can be fixed at its start.
            "update": key.update.value if key.scope is Scope.BROKER else "at any time",
            "importance": key.importance,
            "acts": key.acts,
            "doc": key.doc,
        }
        for key in KEYS
        if not key.hidden
    ]
    return tuple(sorted(documents, key=lambda document: (document["name"], document["scope"])))
