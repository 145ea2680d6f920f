"""FindCoordinator (10): which broker coordinates a group or a transactional id.

- v0: groups
- v1: transactional ids too; the answer has a text (up to v3 "NONE" where all is well)
- v2: the client waits where it is throttled (KIP-219)
- v3: flexible encoding (KIP-482)
- v4: KIP-699, several keys at a time
- v5: TRANSACTION_ABORTABLE (KIP-890)
- v6: KIP-932, share groups, which are refused

It is the leader of the key's partition of `__consumer_offsets` or `__transaction_state`, topics that are made when they
are first needed; KafkaApis answers COORDINATOR_NOT_AVAILABLE meanwhile, here the answer waits for it. Where nobody
leads the partition, it is COORDINATOR_NOT_AVAILABLE here, too. Where the topic is to have more replicas than there are
brokers, KafkaApis answers the same for ever, and clients ask for ever; here it is this broker, once the cluster has had
time to start, and what they ask of it gets INVALID_REPLICATION_FACTOR. Share groups are not served yet, so asking for
their coordinator gets INVALID_REQUEST with that reason rather than an address that would not help.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.broker.advertised import endpoint_of
from moldau.broker.answers.groups import Coordinator, FindCoordinatorResponse
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited_once
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 10
VERSIONS = (0, 6)

DESCRIBE_GROUP = right("FindCoordinator", Operation.DESCRIBE, Resource.GROUP)
DESCRIBE_ID = right("FindCoordinator", Operation.DESCRIBE, Resource.TRANSACTIONAL_ID)

BATCHED_SINCE_VERSION = 4
KEY_TYPE_GROUP = 0
UNKNOWN_KEY_TYPE = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to"
    " an incompatible broker. See the broker logs for more details."
)
NOT_AVAILABLE = "The coordinator is not available."
KEY_TYPES = {2: "share groups"}
COORDINATOR_TOPICS = {KEY_TYPE_GROUP: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
DESCRIBE = {CONSUMER_OFFSETS: DESCRIBE_GROUP, TRANSACTION_STATE: DESCRIBE_ID}


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> FindCoordinatorResponse:
    key_type: int = getattr(request, "key_type", KEY_TYPE_GROUP)
    if context.version >= BATCHED_SINCE_VERSION:
        keys = request.coordinator_keys
        found = await awaited_once(context, lambda key: _find(broker, context, key_type, key), keys)
        return FindCoordinatorResponse(tuple(found))
    one = await _find(broker, context, key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message if one.error_code else "NONE",
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: CoordinatorBroker, context: RequestContext, key_type: int, key: str) -> Coordinator:
    topic = COORDINATOR_TOPICS.get(key_type)
    if topic is None:
        reason = (
            f"{KEY_TYPES[key_type]} are not served by this broker"
            if key_type in KEY_TYPES
            else UNKNOWN_KEY_TYPE
        )
        return Coordinator(key, ErrorCode.invalid_request, reason)
    if not may(broker, context, DESCRIBE[topic], key):
        return Coordinator(key, DESCRIBE[topic].error, DESCRIBE[topic].message)
    found = await broker.coordinators.find(topic, key)
    if found.error:
        return Coordinator(key, found.error, found.message or NOT_AVAILABLE)
    coordinator = broker.image.brokers.get(found.node_id)  # this broker may be fenced itself
    endpoint = None if coordinator is None else endpoint_of(broker, context, coordinator)
    if endpoint is None:
        return Coordinator(key, ErrorCode.coordinator_not_available, NOT_AVAILABLE)
    return Coordinator(key, ErrorCode.none, "", found.node_id, *endpoint)
