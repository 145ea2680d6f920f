"""A broker's TLS: what each listener serves by, by what it connects to other brokers, and who clients are by their
certificates.

New certificates are taken up without a restart: when the files change, and when the settings do. What cannot be used
leaves the old in force, with one line in the log. As in Kafka, a new certificate has the old one's distinguished name,
and its host names, unless `ssl.allow.dn.changes` and `ssl.allow.san.changes` say otherwise. Connections that are open
keep what they began with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from moldau.broker.seldom import Seldom
from moldau.broker.server import Tls
from moldau.config.broker import BrokerConfig
from moldau.config.key import ConfigError
from moldau.config.listener_settings import HTTP, HttpSettings, ListenerSettings, settings_of
from moldau.config.ssl_keys import SSL
from moldau.runtime.ports import Runtime
from moldau.runtime.secured_net import SecuredNet
from moldau.runtime.tls import TlsContext, TlsSettings, TlsSettingsError
from moldau.security.tls.mapping import KEY as MAPPING_RULES
from moldau.security.tls.mapping import PrincipalMapping
from moldau.security.tls.names import subject_of
from moldau.security.tls.settings import sides_of
from moldau.security.tls.stores import Certificate, locations

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""How often the files are looked at."""
EXPIRY_WARNING_S = 14 * 86400.0
EXPIRY_SAID_EVERY_S = 86400.0
TRUST_KEYS = ("ssl.truststore.location", "ssl.truststore.certificates")
"""Where none of them is set, the broker is not meant to have others yet."""
_ANONYMOUS = "User:ANONYMOUS"

Stamp = tuple[object, ...]
"""What the contexts were made of: it differs where they have to be made anew."""


class InForce(NamedTuple):
    """What one listener goes by now."""

    server: TlsContext
    client: TlsContext | None
    """Where other brokers are connected to by it."""
    own: Certificate
    mapping: PrincipalMapping
    stamp: Stamp
    flaw: str | None
    """Why brokers with this certificate could not talk to each other."""


class BrokerTls:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._config: BrokerConfig | None = None
        self._in_force: dict[str, InForce] = {}
        self._refused: dict[str, Stamp] = {}
        """What could not be used, and was said to."""
        self._is_looking = self._is_due = False
        self._seldom = Seldom(runtime.clock, EXPIRY_SAID_EVERY_S)

    async def start(self, config: BrokerConfig) -> None:
        """ConfigError says what of a listener's settings or files cannot be used."""
        self._config = config
        names = [endpoint.name for endpoint in config.listeners if endpoint.is_tls]
        if config["moldau.http.port"] >= 0 and config["moldau.http.ssl.keystore.location"]:
            names.append(HTTP)
        for name in names:
            settings = _settings(config, name)
            made = self._in_force[name] = await self._runtime.tasks.in_thread(self._made, settings)
            if made.flaw is not None and any(settings[key] for key in TRUST_KEYS):
                log.warning("listener %s: brokers with this certificate cannot talk: %s", name, made.flaw)
        self._warn_of_expiry()

    def serving(self, listener: str) -> Tls | None:
        """What the server has to know of a listener; None where it does not speak TLS, and in no other case."""
        assert self._config is not None
        if not any(one.is_tls for one in self._config.listeners if one.name == listener):
            return None
        _ = self._in_force[listener]  # a KeyError now, not when the first client comes
        return Tls(lambda: self._in_force[listener].server, lambda shown: self.principal_of(listener, shown))

    @property
    def of_http(self) -> Callable[[], TlsContext] | None:
        """What the port of /metrics serves by; None where it does not speak TLS."""
        return (lambda: self._in_force[HTTP].server) if HTTP in self._in_force else None

    def client_context(self, listener: str) -> TlsContext:
        """What other brokers are connected to by."""
        context = self._in_force[listener].client
        assert context is not None
        return context

    def for_peers(self, config: BrokerConfig) -> Runtime:
        """The world for whoever connects to other brokers."""
        endpoint = config.inter_broker_listener
        if not endpoint.is_tls:
            return self._runtime
        net = SecuredNet(self._runtime.net, lambda: self.client_context(endpoint.name))
        return replace(self._runtime, net=net)

    @property
    def certificates(self) -> Mapping[str, Certificate]:
        """By listener."""
        return {name: one.own for name, one in self._in_force.items()}

    def principal_of(self, listener: str, certificate: bytes | None) -> str | None:
        """Of a client that has shown this certificate, or none; None where no rule gives it a name. With SASL a
        certificate opens the door, and names nobody."""
        if certificate is None or self._is_sasl(listener):
            return _ANONYMOUS
        try:
            name = self._in_force[listener].mapping.name_of(subject_of(certificate))
        except ValueError:
            return None
        return None if name is None else f"User:{name}"

    def own_principal(self, listener: str) -> str | None:
        """Who this broker is to those who see its certificate there; None where it shows none."""
        one = self._in_force.get(listener)
        name = None if one is None else one.mapping.name_of(one.own.subject)
        return None if name is None else f"User:{name}"

    def configure(self, config: BrokerConfig) -> None:
        """The settings may have changed: look at them at once."""
        self._config = config
        if self._in_force:
            self._runtime.tasks.spawn(self.look(), name="certificates")

    async def look_on(self) -> None:
        """Look at the files, for ever."""
        while self._in_force:
            await self._runtime.tasks.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """One look at a time, lest an older context takes the place of a newer one. Whoever asks meanwhile has the one
        under way followed by another."""
        self._is_due = True
        if self._is_looking:
            return
        self._is_looking = True
        try:
            while self._is_due:
                self._is_due = False
                await self._look()
        finally:
            self._is_looking = False

    async def _look(self) -> None:
        for listener, before in list(self._in_force.items()):
            assert self._config is not None
            settings = _settings(self._config, listener)
            stamp = await self._runtime.tasks.in_thread(self._stamp, settings)
            if stamp == before.stamp or stamp == self._refused.get(listener):
                continue
            try:
                made = await self._runtime.tasks.in_thread(self._made, settings)
                _check_change(settings, before, made, self._runtime.clock.wall_ms() / 1000)
            except ConfigError as error:
                self._refused[listener] = stamp
                log.error("the certificate in force stays: %s", error)
                continue
            self._refused.pop(listener, None)
            self._in_force[listener] = made
            log.info("listener %s has new certificates: %s", listener, made.own.subject)
        self._warn_of_expiry()

    def _made(self, settings: ListenerSettings) -> InForce:
        """In a thread."""
        stamp = self._stamp(settings)
        try:
            is_sasl = self._is_sasl(settings.listener)
            sides = sides_of(settings, self._runtime.disk.read, is_sasl=is_sasl)
            net = self._runtime.net
            server, client, flaw = net.tls_context(sides.server), None, None
            if self._is_of_brokers(settings.listener):
                client = net.tls_context(sides.client)
                flaw = self._flaw(server, sides.client)
            mapping = PrincipalMapping(settings[MAPPING_RULES])
        except (ConfigError, TlsSettingsError) as error:
            raise ConfigError(f"listener {settings.listener}: {error}") from None
        return InForce(server, client, sides.own, mapping, stamp, flaw)

    def _flaw(self, server: TlsContext, client: TlsSettings) -> str | None:
        """As Kafka's SslEngineValidator: whether a broker could talk to itself. Names are for those who connect."""
        net = self._runtime.net
        try:
            net.tls_check(server, net.tls_context(replace(client, checks_host=False)))
        except TlsSettingsError as error:
            return str(error)
        return None

    def _is_of_brokers(self, listener: str) -> bool:
        assert self._config is not None
        return self._config.inter_broker_listener.name == listener

    def _is_sasl(self, listener: str) -> bool:
        assert self._config is not None
        return any(one.is_sasl for one in self._config.listeners if one.name == listener)

    def _stamp(self, settings: ListenerSettings) -> Stamp:
        """In a thread: it looks at files."""
        values = tuple(_hashable(settings[key.name]) for key in SSL)
        return *values, *(self._state_of(path) for path in locations(settings))

    def _state_of(self, path: str) -> object:
        disk = self._runtime.disk
        try:
            return disk.modified_ms(path), disk.size(path)
        except OSError as error:
            return error.errno

    def _warn_of_expiry(self) -> None:
        now_s = self._runtime.clock.wall_ms() / 1000
        for listener, one in self._in_force.items():
            left_s = one.own.not_after_s - now_s
            if left_s < EXPIRY_WARNING_S and self._seldom((listener, one.own.not_after_s)):
                when = (
                    f"expires in {left_s / 86400:.1f} days"
                    if left_s > 0
                    else "has expired: clients refuse it"
                )
                log.warning("the certificate of listener %s %s", listener, when)


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _settings(config: BrokerConfig, listener: str) -> ListenerSettings:
    return HttpSettings(config) if listener == HTTP else settings_of(config, listener)


def _check_change(settings: ListenerSettings, before: InForce, after: InForce, now_s: float) -> None:
    """Kafka's `CertificateEntries.ensureCompatible`, and that the new one serves."""
    where, old, new = f"listener {settings.listener}", before.own, after.own
    if not new.not_before_s <= now_s < new.not_after_s:
        when = "has expired" if new.not_after_s <= now_s else "is not good yet"
        raise ConfigError(f"{where}: the new certificate {when}")
    if before.flaw is None and after.flaw is not None:
        raise ConfigError(f"{where}: brokers with the new certificate cannot talk: {after.flaw}")
    if not settings["ssl.allow.dn.changes"] and old.subject != new.subject:
        raise ConfigError(
            f"{where}: Keystore DistinguishedName does not match:  existing={old.subject}, new={new.subject}"
        )
    if not settings["ssl.allow.san.changes"] and not old.hosts <= new.hosts:
        missing = ", ".join(sorted(old.hosts - new.hosts))
        raise ConfigError(f"{where}: Keystore SubjectAltNames do not match: the new one lacks {missing}")
