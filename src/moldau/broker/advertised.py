"""The address that a client is told to use for a broker: one rule for every answer that names one.

`advertised.listeners` where it is set for the listener that the client came in by. Where it is not, the
address that the client itself connected to: that one is known to work from where the client is, be it
localhost, a container or a VM.
"""

from __future__ import annotations

from moldau.broker.interface import ClusterView, RequestContext
from moldau.metadata.records import BrokerInfo
from moldau.runtime.ports import Address


def advertised_endpoint(broker: ClusterView, context: RequestContext) -> Address:
    """This broker's own address, for this client."""
    local_host, local_port = context.local_address
    # An IPv4 client on a socket for both families: it knows only the IPv4 address.
    local_host = local_host.removeprefix("::ffff:")
    host, port = broker.config.advertised_listeners.get(context.listener_name, ("", local_port))
    return host or local_host, port


def endpoint_of(broker: ClusterView, context: RequestContext, other: BrokerInfo) -> Address | None:
    """Any broker's address on the client's listener; None where it does not have that listener."""
    if other.id == broker.node_id:
        return advertised_endpoint(broker, context)
    address = other.listeners.get(context.listener_name)
    if address is None or address[0]:
        return address
    return advertised_endpoint(broker, context)[0], address[1]  # on this machine: by the name that got here
