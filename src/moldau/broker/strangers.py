"""The connections that have yet to say who they are: in the order in which they came, and by where they came from."""

from __future__ import annotations

from typing import NamedTuple

from moldau.broker.connection import Connection
from moldau.security.networks import network_of


class _Arrival(NamedTuple):
    at_s: float
    network: str


class Strangers:
    def __init__(self) -> None:
        self._arrivals: dict[Connection, _Arrival] = {}
        self._of_networks: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._arrivals)

    def add(self, connection: Connection, now_s: float) -> None:
        arrival = _Arrival(now_s, network_of(connection.stream.peer[0]))
        self._arrivals[connection] = arrival
        self._of_networks.setdefault(arrival.network, {})[connection] = None

    def remove(self, connection: Connection) -> None:
        """It has said who it is, or is gone. There may be nothing to do."""
        arrival = self._arrivals.pop(connection, None)
        if arrival is None:
            return
        others = self._of_networks[arrival.network]
        del others[connection]
        if not others:
            del self._of_networks[arrival.network]

    def one_of_most(self) -> Connection:
        """The oldest of the address that has the most: who opens many pushes out nobody else."""
        most = max(self._of_networks.values(), key=len)
        return next(iter(most))

    def since(self, oldest_s: float, number_max: int) -> list[Connection]:
        """So many of those that came then or before."""
        late: list[Connection] = []
        for connection, arrival in self._arrivals.items():
            if arrival.at_s > oldest_s or len(late) == number_max:
                break
            late.append(connection)
        return late
