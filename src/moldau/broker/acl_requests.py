"""Requests about ACLs: what they say, and what Kafka's AclApis answers where no authorizer is configured.

Without one there are no ACLs, and each request about them gets SECURITY_DISABLED, which clients and consoles know.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.interface import Request
from moldau.security.acls import Acl, AclFilter, Entry, Operation, Pattern, Permission, Resource
from moldau.wire.frames import WireError

DISABLED = ErrorCode.security_disabled
NO_AUTHORIZER = "No Authorizer is configured."

_UNKNOWN = 0
"""What each of the enumerations (resource, pattern, operation, permission) has for "unknown"."""


def acl_of(asked: Request) -> Acl | KafkaError:
    """KafkaError where an element is a number that stands for nothing."""
    refuse_unknown(asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type)
    try:
        entry = Entry(
            asked.principal, asked.host, Operation(asked.operation), Permission(asked.permission_type)
        )
        resource, pattern = Resource(asked.resource_type), Pattern(asked.resource_pattern_type)
    except ValueError:
        return KafkaError(ErrorCode.invalid_request, "An element of the ACL is UNKNOWN")
    return Acl(resource, pattern, asked.resource_name, entry)


def filter_of(asked: Request) -> AclFilter | KafkaError:
    """KafkaError where an element is a number that stands for nothing."""
    refuse_unknown(
        asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
    )
    try:
        return AclFilter(
            Resource(asked.resource_type_filter),
            Pattern(asked.pattern_type_filter),
            asked.resource_name_filter,
            asked.principal_filter,
            asked.host_filter,
            Operation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError:
        return KafkaError(ErrorCode.invalid_request, "Unknown patternFilter or entryFilter.")


def refuse_unknown(*values: int) -> None:
    """Kafka's requests (CreateAclsRequest and its like) cannot be made with an UNKNOWN: the connection ends."""
    if _UNKNOWN in values:
        raise WireError("a request about ACLs with UNKNOWN elements")
