"""CreateAcls (30): rules about who may do what, and who may not. The decisions and their texts are in
`controller.acls`.

- v1: KIP-290, resources by prefix
- v2: flexible encoding (KIP-482)
- v3: KIP-373, users as resources

One that is there already is well. They are in force on every broker as soon as it has heard of them.
"""

from __future__ import annotations

from collections.abc import Awaitable

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.acl_requests import DISABLED, NO_AUTHORIZER, acl_of
from moldau.broker.answers.acls import AclCreationResult, CreateAclsResponse
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import in_slices, paced
from moldau.runtime.line import Slices
from moldau.security.acls import Acl, Operation, Resource
from moldau.security.rights import right

API_KEY = 30
VERSIONS = (1, 3)

ALTER_CLUSTER = right("CreateAcls", Operation.ALTER, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


def handle(
    broker: AdminBroker, context: RequestContext, request: Request
) -> Slices[CreateAclsResponse | Awaitable[CreateAclsResponse]]:
    acls = yield from in_slices(acl_of, request.creations)
    if broker.guard is None:
        return CreateAclsResponse((AclCreationResult(DISABLED, NO_AUTHORIZER),) * len(acls))
    if not may(broker, context, ALTER_CLUSTER):
        return CreateAclsResponse((AclCreationResult(ALTER_CLUSTER.error),) * len(acls))
    return _create(broker, context, acls)


async def _create(
    broker: AdminBroker, context: RequestContext, asked: list[Acl | KafkaError]
) -> CreateAclsResponse:
    acls = [one for one in asked if not isinstance(one, KafkaError)]
    try:
        outcomes = iter(await broker.controller.create_acls(acls))
    except KafkaError as error:
        if error.code is ErrorCode.not_controller:
            raise
        return CreateAclsResponse((AclCreationResult(error.code, error.message),) * len(asked))

    def answer(one: Acl | KafkaError) -> AclCreationResult:
        return _answer(one if isinstance(one, KafkaError) else next(outcomes))

    return CreateAclsResponse(tuple(await paced(context, answer, asked)))


def _answer(refusal: KafkaError | None) -> AclCreationResult:
    return AclCreationResult() if refusal is None else AclCreationResult(refusal.code, refusal.message)
