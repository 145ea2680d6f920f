"""The settings of one listener: Kafka's `listener.name.NAME.KEY`, and with SASL `listener.name.NAME.MECHANISM.KEY`.

What is not set for the listener is what the broker has without a prefix, as in Kafka. NAME and MECHANISM are in lower
case. Known keys alone count: `split` gives None for all others, so that a misspelt one is refused like any other key.
Names of listeners have no dots here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.config.ssl_keys import STORE_KEYS

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

PREFIX = "listener.name."
HTTP = "moldau.http"
"""What the port of /metrics and /health is called among listeners."""
HTTP_KEYS = {
    "ssl.keystore.location": "moldau.http.ssl.keystore.location",
    "ssl.keystore.password": "moldau.http.ssl.keystore.password",
    "ssl.key.password": "moldau.http.ssl.key.password",
    "ssl.truststore.location": "moldau.http.ssl.truststore.location",
    "ssl.truststore.password": "moldau.http.ssl.truststore.password",
    "ssl.client.auth": "moldau.http.ssl.client.auth",
}
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")
_SECURITY = ("ssl.", "sasl.")
_OTHERS = frozenset({"connections.max.reauth.ms", "max.connection.creation.rate", "principal.builder.class"})


class ListenerKey(NamedTuple):
    """The name of a listener's setting, taken apart."""

    listener: str
    mechanism: str | None
    key: str


def split(name: str) -> ListenerKey | None:
    """None where it does not have the form of one."""
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name[len(PREFIX) :].partition(".")
    mechanism, _, key = rest.partition(".")
    if mechanism in MECHANISMS and (key.startswith("sasl.") or key == "connections.max.reauth.ms"):
        found = ListenerKey(listener, mechanism, key)
    else:
        found = ListenerKey(listener, None, rest)
    is_setting = found.key.startswith(_SECURITY) or found.key in _OTHERS
    return found if listener and listener == listener.lower() and is_setting else None


class ListenerSettings:
    """`settings[key]` is the parsed value: the mechanism's, else the listener's, else the broker's."""

    __slots__ = ("_config", "_prefixes", "listener")

    def __init__(self, config: BrokerConfig, listener: str, mechanism: str | None = None) -> None:
        self.listener = listener
        self._config = config
        prefix = f"{PREFIX}{listener.lower()}."
        self._prefixes = (f"{prefix}{mechanism.lower()}.", prefix) if mechanism else (prefix,)

    def __getitem__(self, key: str) -> Any:
        return self._config[self._name(key) or key]

    def is_set(self, key: str) -> bool:
        """For this listener, or the whole broker."""
        return self._name(key) is not None or self._config.is_set(key)

    def is_own(self, key: str) -> bool:
        """For this listener."""
        return self._name(key) is not None

    def of_mechanism(self, mechanism: str) -> ListenerSettings:
        """`SCRAM-SHA-256` or the like."""
        return ListenerSettings(self._config, self.listener, mechanism)

    def _name(self, key: str) -> str | None:
        return next((name for p in self._prefixes if self._config.is_set(name := p + key)), None)


class HttpSettings(ListenerSettings):
    """Those of the port of /metrics and /health: `moldau.http.ssl.*`, and versions and ciphers of the broker's."""

    __slots__ = ()

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config, HTTP)

    def __getitem__(self, key: str) -> Any:
        if (own := HTTP_KEYS.get(key)) is not None:
            return self._config[own]
        return None if key in STORE_KEYS else self._config[key]

    def is_set(self, key: str) -> bool:
        return key not in STORE_KEYS and self._config.is_set(key)


def settings_of(config: BrokerConfig, listener: str) -> ListenerSettings:
    return ListenerSettings(config, listener)


def unheard(names: Iterable[str], listeners: Iterable[str]) -> list[str]:
    """The settings of listeners that are not there: one of them may be meant to keep somebody out."""
    known = {listener.lower() for listener in listeners}
    parts = [(name, split(name)) for name in names]
    return [name for name, part in parts if part is not None and part.listener not in known]
