"""The settings of one broker, parsed and checked: what it was started with, and what was changed while it
runs.

`BrokerConfig` is a value: a dynamic change makes a new one (`with_dynamic`). The texts as they were given are
kept in three layers (this broker's dynamic ones, the cluster's dynamic ones, the start's), because
DescribeConfigs shows them apart; `config[name]` is the parsed value of the first layer that has the name,
else the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moldau.config.key import ConfigError, Key, Update
from moldau.config.listener_settings import PREFIX as LISTENER_PREFIX
from moldau.config.listener_settings import settings_of, split, unheard
from moldau.config.listeners import (
    Endpoint,
    checked_advertised,
    checked_listeners,
    inter_broker,
    parse_endpoints,
    protocol_map,
)
from moldau.config.ssl_keys import STORE_KEYS
from moldau.config.table import BROKER_KEYS, TOPIC_KEYS, broker_key, unknown_broker_key
from moldau.config.topic import TopicConfig, topic_defaults

if TYPE_CHECKING:
    from moldau.config.sasl import SaslSettings

_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}


class BrokerConfig:
    """Use `BrokerConfig.parse`; ConfigError says what is wrong with a key or a value."""

    def __init__(self, static: Mapping[str, str], default: Mapping[str, str], own: Mapping[str, str]) -> None:
        self.static = static
        self.dynamic_default = default
        self.dynamic = own
        self._values: dict[str, Any] = {}
        for layer in (static, default, own):
            for name, text in layer.items():
                if (key := broker_key(name)) is not None:
                    self._values[name] = key.parse(text)
        self._check()
        self.listeners = self._listeners()
        self.advertised_listeners = self._advertised_listeners()
        self.inter_broker_listener = self._inter_broker_listener()
        self.sasl = self._sasl()
        """What there is to know of the listeners with SASL, by name."""
        #: What a topic with no settings of its own gets; shared by all of them.
        self.topic_defaults: TopicConfig = topic_defaults(self)

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> BrokerConfig:
        for name in settings:
            if broker_key(name) is None:
                raise unknown_broker_key(name)
        static = dict(settings)
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in settings:
                static.setdefault(other, settings[name])
        return cls(static, {}, {})

    def with_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """The same start with other dynamic settings. Names that nobody knows are kept, as Kafka keeps
        them.
        """
        return BrokerConfig(self.static, dict(default), dict(own))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            key = BROKER_KEYS[name]
            value = None if key.default is None else key.parse(key.default)
            self._values[name] = value
            return value

    def layers(self) -> Iterator[Mapping[str, str]]:
        """The texts that were given, the strongest layer first."""
        yield self.dynamic
        yield self.dynamic_default
        yield self.static

    def is_set(self, name: str) -> bool:
        return any(name in layer for layer in self.layers())

    @property
    def node_id(self) -> int:
        node_id: int = self["node.id"]
        return node_id

    @property
    def log_dirs(self) -> list[str]:
        """The data folders."""
        folders: list[str] = self["log.dirs"] or self["log.dir"]
        return folders

    @property
    def log_dir(self) -> str:
        """The first data folder, which has what a broker has once."""
        return self.log_dirs[0]

    @property
    def warnings(self) -> list[str]:
        """One line for each setting that was given and changes nothing."""
        keys = (broker_key(name) for name in self.static)
        inert = [
            f"{key.name} has no effect in Moldau: {_why(key)}"
            for key in keys
            if key is not None and not key.acts
        ]
        names = [*self._skipped_listeners(), *(endpoint.name for endpoint in self.listeners)]
        absent = [f"{name} has no effect: there is no such listener" for name in unheard(self.static, names)]
        return [*inert, *absent, *self._certificates_not_asked_for()]

    def _certificates_not_asked_for(self) -> list[str]:
        """As in Kafka: with SASL, a listener asks for certificates where that is said for it alone."""
        auth = "ssl.client.auth"
        if self[auth] == "none":
            return []
        return [
            f"{auth} is for listeners without SASL: set {LISTENER_PREFIX}{one.name.lower()}.{auth} for {one.name}"
            for one in self.listeners
            if one.is_tls and one.is_sasl and not settings_of(self, one.name).is_own(auth)
        ]

    def topic_default(self, topic_key: str) -> Any:
        """The broker's value for a topic key: of its broker keys the first that is set, in the topic key's
        unit.
        """
        key = TOPIC_KEYS[topic_key]
        names = [name for name in key.synonyms if self.is_set(name)] or key.synonyms[-1:]
        if not names:
            return None if key.default is None else key.parse(key.default)
        value = self[names[0]]
        if topic_key == "retention.ms" and value < 0:
            return -1
        return value * _MS[names[0].rpartition(".")[2]] if len(key.synonyms) > 1 else value

    def _check(self) -> None:
        if self.is_set("broker.id") and self["broker.id"] != self["node.id"]:
            raise ConfigError(
                f"node.id is {self['node.id']} and broker.id is {self['broker.id']}: "
                "they name the same thing, so give one of them"
            )
        if not all(self.log_dirs or [""]):
            raise ConfigError("log.dirs: a data folder without a name")
        _require(
            self.topic_default("retention.ms") != 0,
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        )
        _require(self.topic_default("segment.ms") >= 1, "log.roll.ms must be greater than or equal to 1")
        _require(
            self.topic_default("segment.jitter.ms") >= 0,
            "log.roll.jitter.ms must be greater than or equal to 0",
        )
        _require(
            self["max.connections.per.ip"] > 0,
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        )
        _require(
            self["log.cleaner.dedupe.buffer.size"] > self["log.cleaner.threads"] * 1024 * 1024 > 0,
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        )
        if not 1 <= self["default.replication.factor"] <= 32767:
            raise ConfigError("default.replication.factor must be at least 1")

    def _listeners(self) -> tuple[Endpoint, ...]:
        protocols = protocol_map(self["listener.security.protocol.map"])
        return checked_listeners(
            parse_endpoints("listeners", self["listeners"]), protocols, self._skipped_listeners()
        )

    def _advertised_listeners(self) -> dict[str, tuple[str, int]]:
        advertised = parse_endpoints("advertised.listeners", self["advertised.listeners"] or [])
        return checked_advertised(advertised, self.listeners, self._skipped_listeners())

    def _inter_broker_listener(self) -> Endpoint:
        protocol = "security.inter.broker.protocol"
        return inter_broker(
            self.listeners,
            self["inter.broker.listener.name"],
            self[protocol] if self.is_set(protocol) else None,
        )

    def _sasl(self) -> Mapping[str, SaslSettings]:
        names = [endpoint.name for endpoint in self.listeners if endpoint.is_sasl]
        if not names:
            return {}
        from moldau.config.sasl import broker_login, sasl_settings

        found = {name: sasl_settings(self, name) for name in names}
        if self.inter_broker_listener.is_sasl:
            broker_login(self)  # what is missing is said at the start
        return found

    def _skipped_listeners(self) -> list[str]:
        return [name.upper() for name in self["controller.listener.names"]]


def _require(is_so: bool, text: str) -> None:
    """One of the checks that Kafka makes beyond the bounds of single keys, with its text."""
    if not is_so:
        raise ConfigError(f"requirement failed: {text}")


def _why(key: Key) -> str:
    part = split(key.name)
    return "not acted on yet" if (part.key if part else key.name) in BROKER_KEYS else key.doc


def dynamic_names(names: Iterable[str], *, per_broker: bool) -> tuple[list[str], list[str]]:
    """Of changed names: those that cannot change while the broker runs, and those that only one broker can
    have.
    """
    keys = [key for key in map(broker_key, names) if key is not None]
    fixed = [key.name for key in keys if key.update is Update.READ_ONLY]
    own = [key.name for key in keys if key.update is Update.PER_BROKER and not per_broker]
    return fixed, own


def without_listener(names: Iterable[str]) -> list[str]:
    """Of changed names: those of key and trust stores, which change while the broker runs for one listener alone
    (Kafka's `SslConfigs.RECONFIGURABLE_CONFIGS`)."""
    return [name for name in names if name in STORE_KEYS]
