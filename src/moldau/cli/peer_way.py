"""The settings of a client, for connections of `peers`: the requests that confluent-kafka has no calls for.

What is served is a listener without TLS and SASL; for any other there is one clear sentence.
"""

from __future__ import annotations

from moldau.cli.errors import usage
from moldau.cli.options import Target


def require_plaintext(target: Target) -> None:
    protocol = target.properties.get("security.protocol", "plaintext")
    if protocol.lower() != "plaintext":
        whose = f" in {target.origin}" if target.origin else ""
        raise usage(
            f"This command does not speak security.protocol={protocol}{whose} yet.",
            "Use a listener without TLS and SASL: --bootstrap HOST:PORT, without --profile.",
        )
