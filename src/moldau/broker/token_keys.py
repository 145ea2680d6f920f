"""Whom the tokens of a listener's clients name, with the keys of its settings, which are fetched when they are needed.

Keys are kept for `sasl.oauthbearer.jwks.endpoint.refresh.ms`; then those that are there serve until newer ones have
come. A token that names a key which is not there has them fetched earlier, at most every JWKS_EARLY_REFRESH_S_MIN.
Fetching is bounded in time and size, and waits in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from moldau.base.limits import JWKS_BYTES_MAX, JWKS_EARLY_REFRESH_S_MIN, JWKS_FETCH_S_MAX
from moldau.broker.seldom import Seldom
from moldau.config.sasl import TokenSettings
from moldau.runtime.ports import Runtime
from moldau.security.sasl.exchange import Identity, Refused
from moldau.security.sasl.tokens import TokenKey, UnknownKey, identity_in, parse_keys, unsigned_identity_in

log = logging.getLogger(__name__)

FILE = "file://"

Fetch = Callable[[str, float, int], bytes]
"""A file of a web server, in so many seconds, of so many bytes at most; it blocks."""
TOLD_EVERY_S = 60.0


class TokenChecker:
    def __init__(self, runtime: Runtime, settings: TokenSettings, fetch: Fetch) -> None:
        self._clock = runtime.clock
        self._settings = settings
        self._keys = (
            None if settings.keys_url is None else KeySource(runtime, settings, settings.keys_url, fetch)
        )
        if self._keys is None:
            log.warning("OAUTHBEARER takes unsigned tokens: whoever reaches the port can be anybody")

    async def identity(self, token: str) -> Identity | None:
        """None where it names nobody."""
        now_ms = self._clock.wall_ms()
        try:
            if self._keys is None:
                return unsigned_identity_in(token, self._settings, now_ms)
            try:
                return identity_in(token, await self._keys.get(), self._settings, now_ms)
            except UnknownKey:
                return identity_in(token, await self._keys.get_newer(), self._settings, now_ms)
        except Refused as reason:
            log.debug("a token is refused: %s", reason)
            return None


class KeySource:
    """The keys at one address."""

    def __init__(self, runtime: Runtime, settings: TokenSettings, url: str, fetch: Fetch) -> None:
        self._runtime = runtime
        self._fetch_url = fetch
        self._url = url
        self._refresh_s = settings.refresh_ms / 1000
        self._backoff_s = settings.backoff_ms / 1000
        self._backoff_s_max = settings.backoff_ms_max / 1000
        self._keys: list[TokenKey] = []
        self._fetched_s = float("-inf")
        """When they were fetched, or could not be."""
        self._failures = 0
        self._fetching: asyncio.Task[None] | None = None
        self._seldom = Seldom(runtime.clock, TOLD_EVERY_S)

    async def get(self) -> list[TokenKey]:
        """Those that are there. Only who comes when there are none waits for them."""
        if self._age_s >= (self._pause_s if self._failures else self._refresh_s):
            self._begin()
        if not self._keys and self._fetching is not None:
            await asyncio.shield(self._fetching)
        return self._keys

    async def get_newer(self) -> list[TokenKey]:
        if self._age_s >= JWKS_EARLY_REFRESH_S_MIN:
            self._begin()
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        return self._keys

    @property
    def _age_s(self) -> float:
        return self._runtime.clock.monotonic() - self._fetched_s

    @property
    def _pause_s(self) -> float:
        return min(self._backoff_s_max, self._backoff_s * 2.0 ** min(self._failures, 16))

    def _begin(self) -> None:
        if self._fetching is None:
            self._fetching = self._runtime.tasks.spawn(self._fetch(), name="keys of tokens")

    async def _fetch(self) -> None:
        try:
            self._keys = await self._runtime.tasks.in_thread(self._read)
            self._failures = 0
        except (OSError, ValueError) as error:
            self._failures += 1
            if self._seldom(self._url):
                log.warning("the keys of tokens cannot be had from %s: %s", self._url, error)
        finally:
            self._fetched_s = self._runtime.clock.monotonic()
            self._fetching = None

    def _read(self) -> list[TokenKey]:
        """In a thread: the libraries that it needs take a while to load."""
        if self._url.startswith(FILE):
            path, disk = self._url.removeprefix(FILE), self._runtime.disk
            if disk.size(path) > JWKS_BYTES_MAX:
                raise ValueError(f"it has more than {JWKS_BYTES_MAX} bytes")
            return parse_keys(disk.read(path))
        return parse_keys(self._fetch_url(self._url, JWKS_FETCH_S_MAX, JWKS_BYTES_MAX))
