"""DescribeUserScramCredentials (50): which SCRAM users there are, and by which mechanisms; never their keys (KIP-554).

- v0: the first

Kafka's ScramImage.describe.
"""

from __future__ import annotations

from collections import Counter

from moldau.base.errors import ErrorCode
from moldau.broker.answers.sasl import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from moldau.broker.guard import may
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.paced import paced
from moldau.metadata.records import ResourceType
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.security.sasl import DECOYS
from moldau.security.sasl.credentials import Mechanism, credential_of

API_KEY = 50
VERSIONS = (0, 0)

DESCRIBE_CLUSTER = right("DescribeUserScramCredentials", Operation.DESCRIBE, Resource.CLUSTER)
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
NOT_THERE = "Attempt to describe a user credential that does not exist: "


async def handle(
    broker: ClusterView, context: RequestContext, request: Request
) -> DescribeUserScramCredentialsResponse:
    if not may(broker, context, DESCRIBE_CLUSTER):
        denied = DescribeUserScramCredentialsResult("", DESCRIBE_CLUSTER.error, None)
        return DescribeUserScramCredentialsResponse(
            (denied,) * len(request.users or ()), DESCRIBE_CLUSTER.error, None
        )
    asked: Counter[str] = Counter()
    await paced(context, lambda user: asked.update((user.name,)), request.users or ())
    users = broker.image.configs_of(ResourceType.USER)

    def describe(name: str) -> DescribeUserScramCredentialsResult:
        if asked[name] > 1:
            return DescribeUserScramCredentialsResult(name, ErrorCode.duplicate_resource, TWICE + name)
        found = ((mechanism, credential_of(users, name, mechanism)) for mechanism in Mechanism)
        infos = tuple(
            CredentialInfo(int(mechanism), credential.iterations)
            for mechanism, credential in found
            if credential is not None
        )
        if not infos:
            return DescribeUserScramCredentialsResult(name, ErrorCode.resource_not_found, NOT_THERE + name)
        return DescribeUserScramCredentialsResult(name, ErrorCode.none, "", infos)

    names = list(asked or users)
    if not asked and DECOYS in users:
        names.remove(DECOYS)
    return DescribeUserScramCredentialsResponse(tuple(await paced(context, describe, names)))
