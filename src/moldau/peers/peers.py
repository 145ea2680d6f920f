"""The other brokers, by id and lane: a peer is made when it is first asked for, and kept: of a broker that is gone,
without an address, as it may come back to those who have its peer still.

A broker answers the requests of one connection in order, so that a long poll holds up all that comes behind it. What
waits and what must not wait therefore have connections of their own: a lane is the name of such a line ("fetcher 0",
"markers"). Addresses come from the cluster image by way of a callable; who follows the image calls `refresh` after a
change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.base.limits import PEERS_MAX
from moldau.peers.errors import Busy, Disconnected
from moldau.peers.peer import Peer
from moldau.runtime.ports import Address, Runtime

if TYPE_CHECKING:
    from moldau.security.sasl.client import Login

AddressOf = Callable[[int], Address | None]


class Peers:
    def __init__(
        self,
        runtime: Runtime,
        client_id: str,
        address_of: AddressOf,
        *,
        login: Login | None = None,
        peers_max: int = PEERS_MAX,
    ) -> None:
        self._login = login
        self._runtime = runtime
        self._client_id = client_id
        self._address_of = address_of
        self._peers_max = peers_max
        self._peers: dict[tuple[int, str], Peer] = {}  # the one that was asked for last is the last

    def __len__(self) -> int:
        return len(self._peers)

    def peer(self, broker_id: int, lane: str = "") -> Peer:
        """Disconnected where no such broker is known; Busy where there are too many, all of them in use."""
        key = (broker_id, lane)
        address = self._address_of(broker_id)
        if address is None:
            raise Disconnected(f"broker {broker_id} is not known")
        peer = self._peers.pop(key, None)
        if peer is None:
            if len(self._peers) >= self._peers_max:
                self._make_room()
            name = f"{self._client_id} {lane}" if lane else self._client_id
            peer = Peer(self._runtime, address, name, self._login)
        self._peers[key] = peer
        return peer

    def refresh(self) -> None:
        """Disconnect the peers of brokers that are gone, follow those that have moved, and try again to reach those
        that could not be reached: one of them may be back."""
        for (broker_id, _), peer in self._peers.items():
            address = self._address_of(broker_id)
            peer.on_address_changed(address)
            if address is not None:
                peer.end_pause()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close("this broker stops")
        self._peers.clear()

    def _make_room(self) -> None:
        for key, peer in self._peers.items():
            if peer.is_idle:
                del self._peers[key]
                peer.close("it was not used")
                return
        raise Busy(f"{len(self._peers)} connections to other brokers are in use")
