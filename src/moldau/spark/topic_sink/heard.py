"""What a client has heard of the brokers. Its calls end with a time-out where no broker lets it in: the cause is here.

A refused login or certificate does not get better by waiting, so who waits looks here meanwhile, and gives up.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError

REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
NO_CAUSES: Final = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class Refused(Exception):
    """The brokers do not let us in."""


class Heard:
    """For the `error_cb` of one client."""

    def __init__(self, mechanism: str | None = None) -> None:
        self._mechanism = mechanism
        self.refusal: str | None = None
        """What a broker has said of the login or the certificate."""
        self.complaint: str | None = None
        """The last thing that went wrong on the way to the brokers."""
        self.are_all_down = False
        """No broker was reached, when that was said."""

    @classmethod
    def by(cls, config: dict[str, str]) -> Heard:
        """By a client with that configuration."""
        if "sasl" not in config.get("security.protocol", "").lower():
            return cls()
        return cls(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI")

    def __call__(self, error: Any) -> None:
        if error.code() in REFUSALS:
            self.refusal = self._with_mechanism(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.are_all_down = True
        if error.code() not in NO_CAUSES:
            self.complaint = self._with_mechanism(error)

    def _with_mechanism(self, error: Any) -> str:
        if error.code() != KafkaError._AUTHENTICATION or self._mechanism is None:
            return str(error.str())
        return f"{error.str()} (SASL mechanism {self._mechanism})"

    def check(self) -> None:
        """Refused, where waiting is of no use."""
        if self.refusal is not None:
            raise Refused(self.refusal)

    def explain(self, failure: str) -> str:
        cause = self.refusal or self.complaint
        return failure if cause is None or cause in failure else f"{failure} ({cause})"
