"""DescribeProducers (61): the producers that a replica of a partition remembers, be it the leader or not: who
looks for transactions that hang (`kafka-transactions find-hanging --broker-id`) asks one broker for all that it has.

- v0: KIP-664
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.logs import DescribeProducersResponse, PartitionProducers, ProducerState
from moldau.broker.guard import may
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.controller.names import invalid_topic_name
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 61
VERSIONS = (0, 0)

READ_TOPIC = right("DescribeProducers", Operation.READ, Resource.TOPIC)

NOT_HOSTED = "This server does not host this topic-partition."


def handle(
    broker: DataBroker, context: RequestContext, request: Request
) -> Slices[DescribeProducersResponse]:
    """A partition that is named again is not looked at again, and answered as often as it is named."""
    known: dict[tuple[str, int], PartitionProducers] = {}
    topics = []
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            place = topic.name, index
            if place not in known:
                known[place] = _describe(broker, context, topic.name, index)
            answers.append(known[place])
            yield
        topics.append(TopicResult(topic.name, tuple(answers)))
    return DescribeProducersResponse(tuple(topics))


def _describe(broker: DataBroker, context: RequestContext, topic: str, index: int) -> PartitionProducers:
    invalid = invalid_topic_name(topic)
    if invalid is not None:
        return PartitionProducers(index, ErrorCode.invalid_topic_exception, invalid)
    if not may(broker, context, READ_TOPIC, topic):
        return PartitionProducers(index, READ_TOPIC.error, READ_TOPIC.message)
    if topic not in broker.image.topics:
        return PartitionProducers(index, ErrorCode.unknown_topic_or_partition, NOT_HOSTED)
    try:
        partition = broker.partition(topic, index)
        error = partition.check_held()
    except KafkaError as reason:
        error = reason.code
    if error:
        return PartitionProducers(index, error)
    producers = tuple(
        ProducerState(
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_txn_first_offset,
        )
        for producer in partition.log.producers()
    )
    return PartitionProducers(index, ErrorCode.none, active_producers=producers)
