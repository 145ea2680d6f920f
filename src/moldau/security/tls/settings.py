"""From the `ssl.*` keys of a listener to what a handshake goes by. What does not serve is a ConfigError, never less
security: a listener without a certificate, clients to be checked against nobody, no version or cipher left.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.key import ConfigError
from moldau.config.listener_settings import ListenerSettings
from moldau.config.ssl_keys import PROTOCOLS, PROTOCOLS_KNOWN
from moldau.runtime.tls import ClientAuth, TlsSettings
from moldau.security.tls.ciphers import ciphers_of
from moldau.security.tls.stores import Certificate, Read, key_store, trust_store


@dataclass(frozen=True, slots=True)
class Sides:
    """What a listener serves by, and what a broker that uses it connects to others by."""

    server: TlsSettings
    client: TlsSettings
    own: Certificate


def sides_of(settings: ListenerSettings, read: Read, *, is_sasl: bool = False) -> Sides:
    """Reads files. With SASL, clients show who they are otherwise: as in Kafka, they are asked for a certificate where
    that is said for this listener alone."""
    own = key_store(settings, read)
    if own is None:
        raise ConfigError("for TLS, set ssl.keystore.location, or ssl.keystore.key and its chain")
    trusted = trust_store(settings, read)
    is_asked = not is_sasl or settings.is_own("ssl.client.auth")
    auth = ClientAuth(settings["ssl.client.auth"]) if is_asked else ClientAuth.NONE
    if auth is not ClientAuth.NONE and not trusted:
        raise ConfigError(
            f"with ssl.client.auth={auth.value}, ssl.truststore.location or ssl.truststore.certificates has to say "
            "whose certificates are good"
        )
    versions = versions_of(settings)
    ciphers = ciphers_of(settings["ssl.cipher.suites"])
    if ciphers.unknown:
        raise ConfigError(f"ssl.cipher.suites: not known, or not safe: {', '.join(ciphers.unknown)}")
    if ciphers.tls_1_2 or ciphers.tls_1_3:  # a version without a suite cannot be spoken
        has_suites = {"TLSv1.2": ciphers.tls_1_2, "TLSv1.3": ciphers.tls_1_3}
        versions = tuple(version for version in versions if has_suites[version])
        if not versions:
            raise ConfigError("no version in ssl.enabled.protocols has a suite in ssl.cipher.suites")
    checks_host = bool(settings["ssl.endpoint.identification.algorithm"])

    def side(is_server: bool) -> TlsSettings:
        return TlsSettings(
            is_server=is_server,
            chain_pem=own.chain_pem,
            key_pem=own.key_pem,
            trusted_pem=trusted,
            client_auth=auth,
            versions=versions,
            ciphers=ciphers.tls_1_2,
            suites=ciphers.tls_1_3,
            checks_host=checks_host,
        )

    return Sides(side(True), side(False), own.own)


def versions_of(settings: ListenerSettings) -> tuple[str, ...]:
    """Of those that are enabled, up to `ssl.protocol`."""
    enabled, newest = settings["ssl.enabled.protocols"], settings["ssl.protocol"]
    if newest not in (*PROTOCOLS_KNOWN, "TLS"):
        raise ConfigError(f"ssl.protocol: {newest} is no version of TLS")
    versions = tuple(version for version in PROTOCOLS if version in enabled)
    if settings.is_set("ssl.protocol") and newest in PROTOCOLS:
        versions = tuple(version for version in versions if version <= newest)
    if not versions:
        raise ConfigError("neither TLSv1.2 nor TLSv1.3 is left by ssl.enabled.protocols and ssl.protocol")
    return versions
