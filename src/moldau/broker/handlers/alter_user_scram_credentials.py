"""AlterUserScramCredentials (51): passwords of SCRAM users, as the client has salted them (KIP-554).

- v0: the first

The decisions and their texts are in `controller.users`.
"""

from __future__ import annotations

from moldau.broker.answers.sasl import AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.users import Deletion, Upsertion, UserOutcome
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 51
VERSIONS = (0, 0)

ALTER_CLUSTER = right("AlterUserScramCredentials", Operation.ALTER, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(
    broker: AdminBroker, context: RequestContext, request: Request
) -> AlterUserScramCredentialsResponse:
    deletions = await paced(context, _deletion, request.deletions)
    upsertions = await paced(context, _upsertion, request.upsertions)
    if not may(broker, context, ALTER_CLUSTER):
        names = sorted({one.user for one in deletions} | {one.user for one in upsertions})
        denied = await paced(context, _denied, names)
        return AlterUserScramCredentialsResponse(tuple(denied))
    outcomes = await broker.controller.alter_users(deletions, upsertions)
    return AlterUserScramCredentialsResponse(tuple(await paced(context, _result, outcomes)))


def _deletion(asked: Request) -> Deletion:
    return Deletion(asked.name, asked.mechanism)


def _upsertion(asked: Request) -> Upsertion:
    return Upsertion(asked.name, asked.mechanism, asked.iterations, asked.salt, asked.salted_password)


def _denied(name: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(name, ALTER_CLUSTER.error, None)


def _result(outcome: UserOutcome) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(*outcome)
