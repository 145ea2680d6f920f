"""What Kafka's AclApis answers where no authorizer is configured, which is how every Moldau broker runs.

ACLs can be neither kept nor enforced yet, and `authorizer.class.name` is refused at the start. So each request about
them gets SECURITY_DISABLED, which clients and consoles know as "this cluster has no ACLs".
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.wire.frames import WireError

ERROR = ErrorCode.security_disabled
MESSAGE = "No Authorizer is configured."

_UNKNOWN = 0
"""What each of the enumerations (resource, pattern, operation, permission) has for "unknown"."""


def refuse_unknown(*values: int) -> None:
    """Kafka's requests (CreateAclsRequest and its like) cannot be made with an UNKNOWN: the connection ends."""
    if _UNKNOWN in values:
        raise WireError("a request about ACLs with UNKNOWN elements")
