"""DescribeConfigs (32): the settings of topics, brokers, groups, client metrics and loggers, with their sources.

- v1: KIP-226, sources and synonyms
- v2: the client waits where it is throttled (KIP-219)
- v3: KIP-569, the answer has types, and documentation where it is asked for
- v4: flexible encoding (KIP-482)

What is told is made in `config.describe`. A broker answers for itself and for the default of all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.configs import DescribeConfigsResponse, DescribeConfigsResult
from moldau.broker.config_rights import denial, rights_by_type
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.broker.loggers import describe_loggers
from moldau.broker.paced import in_slices
from moldau.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_default_broker,
    describe_group,
    describe_topic,
)
from moldau.controller.names import check_topic_name
from moldau.metadata.records import ConfigResource, ResourceType
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 32
VERSIONS = (1, 4)

DESCRIBE_CLUSTER = right("DescribeConfigs", Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)
DESCRIBE_TOPIC = right("DescribeConfigs", Operation.DESCRIBE_CONFIGS, Resource.TOPIC)
DESCRIBE_GROUP = right("DescribeConfigs", Operation.DESCRIBE_CONFIGS, Resource.GROUP)
RIGHTS = rights_by_type(DESCRIBE_CLUSTER, DESCRIBE_TOPIC, DESCRIBE_GROUP)

ENTRIES_KEPT = 8

_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was "
    "sent to an incompatible broker. See the broker logs for more details."
)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> Slices[DescribeConfigsResponse]:
    """What is asked for again is not found out again; of a resource with other keys, the settings are kept."""
    entries_of = lru_cache(maxsize=ENTRIES_KEPT)(partial(_entries, broker))
    once = dict.fromkeys(request.resources)
    results = yield from in_slices(partial(_answer, broker, context, entries_of, request), once)
    answers = dict(zip(once, results, strict=True))
    shown = yield from in_slices(answers.__getitem__, request.resources)
    return DescribeConfigsResponse(tuple(shown))


def _answer(
    broker: ClusterView,
    context: RequestContext,
    entries_of: Callable[[int, str], list[ConfigEntry]],
    request: Request,
    asked: Request,
) -> DescribeConfigsResult:
    missing = denial(broker, context, RIGHTS, asked.resource_type, asked.resource_name)
    if missing is not None:
        return DescribeConfigsResult(
            missing.error, missing.message, asked.resource_type, asked.resource_name, ()
        )
    error, message = ErrorCode.none, ""
    entries: tuple[ConfigEntry, ...] = ()
    try:
        entries = _shown(entries_of(asked.resource_type, asked.resource_name), request, asked)
    except KafkaError as failure:
        error, message = failure.code, failure.message or ""
    return DescribeConfigsResult(error, message, asked.resource_type, asked.resource_name, entries)


def _shown(entries: Sequence[ConfigEntry], request: Request, asked: Request) -> tuple[ConfigEntry, ...]:
    names = frozenset(asked.configuration_keys or ())
    synonyms = getattr(request, "include_synonyms", False)
    docs = getattr(request, "include_documentation", False)
    return tuple(
        entry._replace(
            synonyms=entry.synonyms if synonyms else (), documentation=entry.documentation if docs else None
        )
        for entry in entries
        if not names or entry.name in names
    )


def _entries(broker: ClusterView, type_: int, name: str) -> list[ConfigEntry]:
    image, config = broker.image, broker.config
    match type_:
        case ResourceType.TOPIC:
            check_topic_name(name)
            topic = image.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.unknown_topic_or_partition)
            return describe_topic(config, topic.configs)
        case ResourceType.BROKER:
            if not name:
                return describe_default_broker(config)
            _check_broker(broker, name, f"expected {broker.node_id} or empty string, but")
            return describe_broker(config)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise _refused("Broker id must not be empty")
            _check_broker(broker, name, f"expected {broker.node_id} but")
            return describe_loggers()
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise _refused("Client metrics subscription name must not be empty")
            return describe_client_metrics(image.configs(ConfigResource(ResourceType.CLIENT_METRICS, name)))
        case ResourceType.GROUP:
            if not name:
                raise _refused("Group name must not be empty")
            return describe_group(config, image.configs(ConfigResource(ResourceType.GROUP, name)))
    raise _refused(_MALFORMED)


def _check_broker(broker: ClusterView, name: str, expected: str) -> None:
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal():
        raise _refused(f"Broker id must be an integer, but it is: {name}")
    if int(name) != broker.node_id:
        raise _refused(f"Unexpected broker id, {expected} received {int(name)}")


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, reason)
