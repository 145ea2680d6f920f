"""One session of ZooKeeper as a kazoo client, and the way from kazoo's threads to the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss
from kazoo.protocol.states import KeeperState
from kazoo.security import CREATOR_ALL_ACL

from moldau.store.zookeeper_log import KAZOO, logger
from moldau.store.zookeeper_url import Address

RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 1.0}


class SessionClient(KazooClient):  # type: ignore[misc]
    """A kazoo client for one session: takes requests only while connected, and does not begin a second session."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        credentials = [("digest", address.credentials)] if address.credentials else None
        super().__init__(
            hosts=address.hosts,
            timeout=timeout_s,
            auth_data=credentials,
            default_acl=CREATOR_ALL_ACL if credentials else None,
            connection_retry=RECONNECT,
            logger=KAZOO,
            **address.tls,
        )
        self._gate = self.handler.rlock_object()
        self.unanswered: dict[asyncio.Future[Any], None] = {}
        """Futures of the loop, used on its thread alone."""

    def _call(self, request: Any, async_object: Any) -> Any:
        with self._gate:
            if self._state == KeeperState.CONNECTING:
                async_object.set_exception(ConnectionClosedError("not connected"))
                return False
            return super()._call(request, async_object)

    def _session_callback(self, state: Any) -> None:
        with self._gate:
            if state == KeeperState.EXPIRED_SESSION:
                self._stopped.set()
            super()._session_callback(state)


class Bridge:
    """The one way from kazoo's threads to the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def to_loop(self, callback: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to be told

    def outcome(self, client: SessionClient, result: Any) -> asyncio.Future[Any]:
        """A kazoo result as a future of the loop."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle() -> None:
            client.unanswered.pop(future, None)
            if not future.done():
                if result.exception is None:
                    future.set_result(result.value)
                else:
                    future.set_exception(result.exception)

        if result.ready():
            settle()
        else:
            client.unanswered[future] = None
            result.rawlink(lambda _: self.to_loop(settle))
        return future

    def drop(self, client: SessionClient) -> None:
        """Its threads are gone: nobody else will answer."""
        for future in list(client.unanswered):
            if not future.done():
                future.set_exception(ConnectionLoss())
        client.unanswered.clear()


def stop_client(client: SessionClient) -> None:
    """Blocks until its threads are gone."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # whatever state it was in: nobody uses it any more
        logger.debug("while a client was ended: %r", error)
