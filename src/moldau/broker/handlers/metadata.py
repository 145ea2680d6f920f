"""Metadata (3): the brokers, and where the partitions of topics are led.

- v0: an empty list asks for all topics
- v1: the answer has racks and the controller
- v2: KIP-78, the cluster's id
- v3: the throttle time
- v4: KIP-204, the client says whether topics may be created
- v5: KIP-112, replicas that are offline
- v6: a leader that is alive but lacks the client's listener is LISTENER_NOT_FOUND, LEADER_NOT_AVAILABLE before
- v7: KIP-320, leader epochs
- v8: KIP-430, the operations that the client may do
- v9: flexible encoding (KIP-482)
- v10: KIP-516, ids of topics in the answer; in the request they are not served
- v11: KIP-700, the operations on the cluster are asked for with DescribeCluster
- v12: KIP-516, topics by id
- v13: KIP-1102, the answer has an error of its own

A client asks for topics by name or id, or for all of them (no list). A topic that is not there is created where the
client and `auto.create.topics.enable` allow it, and is in the same answer: Kafka's AutoTopicCreationManager creates it
behind an UNKNOWN_TOPIC_OR_PARTITION, so clients are ready for either.

An answer is kept as it was sent until the cluster changes (`kept_answers`): all clients of a large cluster ask for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Hashable, Sequence
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.base.limits import METADATA_KEPT_TOPICS_MAX
from moldau.broker.advertised import endpoint_of
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.answers.metadata import MetadataResponse, MetadataResponseBroker, TopicShown
from moldau.broker.guard import may, may_quietly, operations
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.kept_answers import Packed, in_larger_pieces
from moldau.broker.topic_view import Viewer, controller_shown
from moldau.controller.names import invalid_topic_name
from moldau.controller.topics import NewTopic
from moldau.runtime.line import Slices, in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.codec import encoding
from moldau.wire.error_codes import sliced_counter_of_errors

log = logging.getLogger(__name__)

Answer = MetadataResponse | Packed

API_KEY = 3
VERSIONS = (0, 13)

DESCRIBE_TOPIC = right("Metadata", Operation.DESCRIBE, Resource.TOPIC)
CREATE_ANY = right("Metadata", Operation.CREATE, Resource.CLUSTER)
CREATE_TOPIC = right("Metadata", Operation.CREATE, Resource.TOPIC)
DESCRIBE_CLUSTER = right("Metadata", Operation.DESCRIBE, Resource.CLUSTER)

BY_ID_SINCE_VERSION = 12
LISTENER_NOT_FOUND_SINCE_VERSION = 6
_TOLD = (ErrorCode.invalid_topic_exception, ErrorCode.invalid_replication_factor)
"""Of the reasons why a topic could not be created, those that a client is told; for others it is just not there."""


def handle(
    broker: AdminBroker, context: RequestContext, request: Request
) -> Answer | Slices[Answer | Awaitable[MetadataResponse]]:
    if asks_for_all(context.version, request.topics):
        return _kept_or_made(broker, context, request, None, _answer_for_all(broker, context, request))
    if context.version < BY_ID_SINCE_VERSION and any(
        _id(asked) is not None or asked.name is None for asked in request.topics
    ):
        return _refused(request)
    if getattr(request, "allow_auto_topic_creation", True) and broker.config["auto.create.topics.enable"]:
        return _answer_or_create(broker, context, request)
    return _answer_named(broker, context, request)


def _answer_or_create(
    broker: AdminBroker, context: RequestContext, request: Request
) -> Slices[Answer | Awaitable[MetadataResponse]]:
    missing: dict[str, None] = {}
    refused: dict[str, ErrorCode] = {}
    for asked in request.topics:
        name = asked.name
        if _id(asked) is None and name is not None and name not in broker.image.topics:
            if not may_quietly(broker, context, DESCRIBE_TOPIC, name):
                pass  # the answer says so
            elif not may_quietly(broker, context, CREATE_ANY) and not may(
                broker, context, CREATE_TOPIC, name
            ):
                refused[name] = CREATE_TOPIC.error
            elif invalid_topic_name(name) is None:
                missing[name] = None
            yield
    if missing:
        return _create_then_answer(broker, context, request, list(missing), refused)
    if refused:
        return (yield from _answer_for(broker, context, request, refused))
    return (yield from _answer_named(broker, context, request))


def _answer_named(broker: AdminBroker, context: RequestContext, request: Request) -> Slices[Answer]:
    making = _answer_for(broker, context, request, {})
    if len(request.topics) > METADATA_KEPT_TOPICS_MAX:
        return (yield from making)
    named = tuple([(asked.name, _id(asked)) for asked in request.topics])
    return (yield from _kept_or_made(broker, context, request, named, making))


def _kept_or_made(
    broker: AdminBroker,
    context: RequestContext,
    request: Request,
    named: tuple[tuple[str | None, UUID | None], ...] | None,
    making: Slices[MetadataResponse],
) -> Slices[Packed]:
    """The answer to who asks for these topics, or for all. Of many who ask at the same time the others find what the
    first has made."""
    image, kept = broker.image, broker.kept_answers
    version = image.version
    head = _answer(broker, context, request, [])
    shape: tuple[Hashable, ...] = (
        context.version,
        context.listener_name,
        _wants_operations(request),
        head,
        named,
    )
    if (guard := broker.guard) is not None:
        shape = (shape, context.principal, context.client_host, guard.version)
    while True:
        answer = kept.get(image.version, shape)
        if answer is not None:
            making.close()
            return answer
        try:
            next(making)
        except StopIteration as end:
            response: MetadataResponse = end.value
            break
        yield
    errors: dict[int, int] = {}
    yield from sliced_counter_of_errors(API_KEY, context.version)(response, errors)
    pieces = yield from encoding(API_KEY, context.version, response)
    answer = Packed((yield from in_larger_pieces(pieces)), errors)
    if image.version == version and (guard is None or shape[-1] == guard.version):
        kept.put(version, shape, answer, _memory_of(head, named))
    return answer


def _memory_of(head: MetadataResponse, named: tuple[tuple[str | None, UUID | None], ...] | None) -> int:
    """About as many bytes as what an answer is kept by."""
    return 500 + 300 * len(head.brokers) + sum([200 + 4 * len(name or "") for name, _ in named or ()])


def _answer_for_all(
    broker: AdminBroker, context: RequestContext, request: Request
) -> Slices[MetadataResponse]:
    viewer = _viewer(broker, context)
    topics = []
    for topic in list(broker.image.topics.values()):
        if may_quietly(broker, context, DESCRIBE_TOPIC, topic.name):
            may_do = _operations(broker, context, request, topic.name)
            topics.append((yield from viewer.showing(topic, may_do)))
        else:
            yield
    return _answer(broker, context, request, topics)


def asks_for_all(version: int, topics: Sequence[Request] | None) -> bool:
    return topics is None or (version == 0 and not topics)


def _id(asked: Request) -> UUID | None:
    return getattr(asked, "topic_id", None)


async def _create_then_answer(
    broker: AdminBroker,
    context: RequestContext,
    request: Request,
    names: list[str],
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    names, later = _within_quota(broker, context, names)
    try:
        outcomes = await broker.channel.create_topics([NewTopic(name) for name in names]) if names else ()
        created = {name: error for name, (error, _) in zip(names, outcomes, strict=True)}
    except KafkaError as error:  # nobody is the controller now: the client asks again
        log.info("cannot create %s: %s", ", ".join(names), error)
        created = dict.fromkeys(names, ErrorCode.leader_not_available)
    return await in_line(context, _answer_for(broker, context, request, created | later | refused))


def _within_quota(
    broker: AdminBroker, context: RequestContext, names: list[str]
) -> tuple[list[str], dict[str, ErrorCode]]:
    """Those that the client may create now, and what is said of the others, which it asks for again (KIP-599). Counted
    here, not by the controller: it is asked in the broker's name."""
    if broker.throttling is None:
        return names, {}
    quota = broker.throttling.mutations(context, is_strict=True)
    partitions: int = broker.config["num.partitions"]
    now: list[str] = []
    later: dict[str, ErrorCode] = {}
    for name in names:
        try:
            quota.charge(partitions)
            now.append(name)
        except KafkaError:
            later[name] = ErrorCode.unknown_topic_or_partition
    return now, later


def _answer_for(
    broker: AdminBroker, context: RequestContext, request: Request, created: dict[str, ErrorCode]
) -> Slices[MetadataResponse]:
    topics = {}
    viewer = _viewer(broker, context)
    by_id = [asked for asked in request.topics if _id(asked) is not None]
    for asked in by_id or request.topics:  # as in KafkaApis, one id makes names count for nothing
        topic_id = _id(asked)
        key = asked.name if topic_id is None else topic_id
        if key not in topics:
            topics[key] = yield from _one(broker, context, viewer, request, asked.name, topic_id, created)
        yield
    return _answer(broker, context, request, list(topics.values()))


def _viewer(broker: AdminBroker, context: RequestContext) -> Viewer:
    knows_listeners = context.version >= LISTENER_NOT_FOUND_SINCE_VERSION
    unled = ErrorCode.leader_not_available
    elsewhere = ErrorCode.listener_not_found if knows_listeners else unled
    return Viewer(broker.image, context.listener_name, unled=unled, elsewhere=elsewhere)


def _one(
    broker: AdminBroker,
    context: RequestContext,
    viewer: Viewer,
    request: Request,
    name: str | None,
    topic_id: UUID | None,
    created: dict[str, ErrorCode],
) -> Slices[TopicShown]:
    image = broker.image
    if topic_id is not None:
        topic = image.topic_by_id.get(topic_id)
        if topic is None:
            return _missing(ErrorCode.unknown_topic_id, None, topic_id, OPERATIONS_UNASKED)
        if not may(broker, context, DESCRIBE_TOPIC, topic.name):  # ids are no secret
            return TopicShown(DESCRIBE_TOPIC.error, None, topic_id, False)
        return (yield from viewer.showing(topic, _operations(broker, context, request, topic.name)))
    if name is None:
        return _missing(ErrorCode.invalid_request, None, None, OPERATIONS_UNASKED)
    if not may(broker, context, DESCRIBE_TOPIC, name):  # not even whether it is there
        return TopicShown(DESCRIBE_TOPIC.error, name, None, False)
    topic = image.topics.get(name)
    if topic is not None:
        return (yield from viewer.showing(topic, _operations(broker, context, request, name)))
    error = ErrorCode.unknown_topic_or_partition
    if created.get(name) is CREATE_TOPIC.error:
        return _missing(CREATE_TOPIC.error, name, None, OPERATIONS_UNASKED)
    if invalid_topic_name(name) is not None:
        error = ErrorCode.invalid_topic_exception
    elif created.get(name) in _TOLD:
        error = created[name]
    return _missing(error, name, None, _operations(broker, context, request, name))


def _wants_operations(request: Request) -> bool:
    return getattr(request, "include_topic_authorized_operations", False)


def _operations(broker: AdminBroker, context: RequestContext, request: Request, name: str) -> int:
    return (
        operations(broker, context, Resource.TOPIC, name)
        if _wants_operations(request)
        else OPERATIONS_UNASKED
    )


def _missing(error: ErrorCode, name: str | None, topic_id: UUID | None, may_do: int) -> TopicShown:
    return TopicShown(error, name, topic_id, name in INTERNAL_TOPICS, topic_authorized_operations=may_do)


def _refused(request: Request) -> MetadataResponse:
    """By id in versions 10 and 11, which KafkaApis does not serve: nothing but the error is answered."""
    topics = (
        _missing(ErrorCode.invalid_request, asked.name or "", _id(asked), OPERATIONS_UNASKED)
        for asked in request.topics
    )
    return MetadataResponse(tuple(topics))


def _answer(
    broker: AdminBroker, context: RequestContext, request: Request, topics: list[TopicShown]
) -> MetadataResponse:
    image = broker.image
    brokers = [
        MetadataResponseBroker(info.id, *endpoint, info.rack)
        for info in image.brokers.values()
        if (endpoint := endpoint_of(broker, context, info)) is not None
    ]
    may_do = OPERATIONS_UNASKED
    if getattr(request, "include_cluster_authorized_operations", False):
        is_told = may(broker, context, DESCRIBE_CLUSTER)
        may_do = operations(broker, context, Resource.CLUSTER) if is_told else 0
    return MetadataResponse(
        topics=tuple(topics),
        brokers=tuple(brokers),
        cluster_id=image.cluster_id,
        controller_id=controller_shown(broker),
        cluster_authorized_operations=may_do,
    )
