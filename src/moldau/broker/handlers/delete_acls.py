"""DeleteAcls (31): the ACLs that filters mean go, and are named in the answer. The decisions are in `controller.acls`.

- v1: KIP-290, resources by prefix
- v2: flexible encoding (KIP-482)
- v3: KIP-373, users as resources
"""

from __future__ import annotations

from collections.abc import Awaitable

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.acl_requests import DISABLED, NO_AUTHORIZER, filter_of
from moldau.broker.answers.acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import awaited, in_slices, paced
from moldau.runtime.line import Slices
from moldau.security.acls import Acl, AclFilter, Operation, Resource
from moldau.security.rights import right

API_KEY = 31
VERSIONS = (1, 3)

ALTER_CLUSTER = right("DeleteAcls", Operation.ALTER, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


def handle(
    broker: AdminBroker, context: RequestContext, request: Request
) -> Slices[DeleteAclsResponse | Awaitable[DeleteAclsResponse]]:
    filters = yield from in_slices(filter_of, request.filters)
    if broker.guard is None:
        return DeleteAclsResponse((DeleteAclsFilterResult(DISABLED, NO_AUTHORIZER),) * len(filters))
    if not may(broker, context, ALTER_CLUSTER):
        return DeleteAclsResponse((DeleteAclsFilterResult(ALTER_CLUSTER.error, None),) * len(filters))
    return _delete(broker, context, filters)


async def _delete(
    broker: AdminBroker, context: RequestContext, asked: list[AclFilter | KafkaError]
) -> DeleteAclsResponse:
    filters = [one for one in asked if not isinstance(one, KafkaError)]
    try:
        outcomes = iter(await broker.controller.delete_acls(filters))
    except KafkaError as error:
        if error.code is ErrorCode.not_controller:
            raise
        return DeleteAclsResponse((DeleteAclsFilterResult(error.code, error.message),) * len(asked))

    async def answer(one: AclFilter | KafkaError) -> DeleteAclsFilterResult:
        if isinstance(one, KafkaError):
            return DeleteAclsFilterResult(one.code, one.message)
        gone = await paced(context, _gone, next(outcomes))
        return DeleteAclsFilterResult(ErrorCode.none, None, tuple(gone))

    return DeleteAclsResponse(tuple(await awaited(context, answer, asked)))


def _gone(acl: Acl) -> DeleteAclsMatchingAcl:
    resource, pattern, name, entry = acl
    return DeleteAclsMatchingAcl(resource, name, pattern, *entry)
