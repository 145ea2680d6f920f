"""ACLs that are listed, created and deleted."""

from typing import NamedTuple

from moldau.base.errors import ErrorCode


class AclCreationResult(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class CreateAclsResponse(NamedTuple):
    results: tuple[AclCreationResult, ...]
    throttle_time: int = 0


class DeleteAclsMatchingAcl(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class DeleteAclsFilterResult(NamedTuple):
    error_code: ErrorCode
    error_message: str | None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


class DeleteAclsResponse(NamedTuple):
    filter_results: tuple[DeleteAclsFilterResult, ...]
    throttle_time: int = 0


class AclDescription(NamedTuple):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResource(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: tuple[AclDescription, ...]


class DescribeAclsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    resources: tuple[DescribeAclsResource, ...] = ()
    throttle_time: int = 0
