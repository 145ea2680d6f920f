"""Two brokers with ACLs, one of each kind, and two who ask them: the administrator, who comes from one address of this
machine and may do everything, and the stranger, who comes from another and may do what a case lets him.

Both are User:ANONYMOUS. The brokers themselves come from the administrator's address.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from interop.same_answers.peers import Both, Pair, Peer
from moldau.security.acls import Operation, Pattern, Permission, Resource
from moldau.security.rights import Right

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
ANYONE = "User:ANONYMOUS"
SETTLE_S = 15.0
PREFIX = "g-"
"""Of what a stranger gets a right to."""
TOPICS = ("g-there", "d-there", "d-doomed")
FROM_KAFKA = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""The first ACLs are made while nothing has any."""


class Grant(NamedTuple):
    operation: Operation
    resource: Resource

    @property
    def acl(self) -> dict[str, Any]:
        is_cluster = self.resource is Resource.CLUSTER
        return acl(
            self.resource,
            "kafka-cluster" if is_cluster else PREFIX,
            self.operation,
            ELSEWHERE,
            Pattern.LITERAL if is_cluster else Pattern.PREFIXED,
        )


def acl(
    resource: Resource, name: str, operation: Operation, host: str, pattern: Pattern = Pattern.LITERAL
) -> dict[str, Any]:
    return {
        "resource_type": int(resource),
        "resource_name": name,
        "resource_pattern_type": int(pattern),
        "principal": ANYONE,
        "host": host,
        "operation": int(operation),
        "permission_type": int(Permission.ALLOW),
    }


def of_host(host: str) -> dict[str, Any]:
    """The filter of all ACLs for those who come from there."""
    return {
        "resource_type_filter": int(Resource.ANY),
        "resource_name_filter": None,
        "pattern_type_filter": int(Pattern.ANY),
        "principal_filter": None,
        "host_filter": host,
        "operation": int(Operation.ANY),
        "permission_type": int(Permission.ANY),
    }


class Land:
    """Both brokers, with ACLs in force."""

    def __init__(self, kafka: str, moldau: str) -> None:
        self.admin = Pair(Peer("kafka", kafka, HERE), Peer("moldau", moldau, HERE))
        self.stranger = Pair(Peer("kafka", kafka, ELSEWHERE), Peer("moldau", moldau, ELSEWHERE))
        self.ids: dict[str, Both] = {}

    def settle(self) -> None:
        """What is there before anybody needs a right."""
        self.admin.warm_up()
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in TOPICS]
        self.admin.ask("CreateTopics", 7, {"topics": topics, "timeout": 10_000})
        self.admin.wait_for("the topics", self._has_topics)
        for name in TOPICS:
            self.ids[name] = self.admin.both(lambda peer, name=name: self._id_of(peer, name))
        beat = {
            "group_id": "g-reader",
            "member_id": "reader",
            "member_epoch": 0,
            "rebalance_timeout": 300_000,
            "subscribed_topic_names": ["d-there"],
            "topic_partitions": [],
        }
        self.admin.wait_for(
            "the group's member",
            lambda peer: self.admin.ask_one(peer, "ConsumerGroupHeartbeat", 1, beat).error_code == 0,
        )
        everything = [
            acl(Resource.CLUSTER, "kafka-cluster", Operation.ALL, HERE),
            *(
                acl(resource, "*", Operation.ALL, HERE)
                for resource in (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)
            ),
        ]
        self._create(everything, HERE)

    def _has_topics(self, peer: Peer) -> bool:
        answer = self.admin.ask_one(peer, "Metadata", 12, {"topics": None})
        led = {
            topic.name
            for topic in answer.topics
            if all(partition.leader_id >= 0 for partition in topic.partitions)
        }
        return led.issuperset(TOPICS)

    def _id_of(self, peer: Peer, name: str) -> Any:
        (topic,) = self.admin.ask_one(peer, "Metadata", 12, {"topics": [{"name": name}]}).topics
        for each in (self.admin, self.stranger):
            (each.kafka if peer.is_kafka else each.moldau).topic_names[topic.topic_id] = name
        return topic.topic_id

    @contextmanager
    def with_grants(self, grants: Sequence[Grant]) -> Iterator[None]:
        """The stranger may do this, and no more."""
        if grants:
            self._create([grant.acl for grant in grants], ELSEWHERE)
        try:
            yield
        finally:
            if grants:
                self.admin.ask("DeleteAcls", 3, {"filters": [of_host(ELSEWHERE)]})
                self._wait(ELSEWHERE, 0)

    def _create(self, acls: list[dict[str, Any]], host: str) -> None:
        answers = self.admin.ask("CreateAcls", 3, {"creations": acls})
        for answer in (answers.kafka, answers.moldau):
            assert [result.error_code for result in answer.results] == [0] * len(acls), answers
        self._wait(host, len(acls))

    def _wait(self, host: str, count: int) -> None:
        deadline_s = time.monotonic() + SETTLE_S
        while True:
            answers = self.admin.ask("DescribeAcls", 3, of_host(host))
            if {_count(answers.kafka), _count(answers.moldau)} == {count}:
                return
            assert time.monotonic() < deadline_s, answers
            time.sleep(0.01)

    def close(self) -> None:
        self.admin.close()
        self.stranger.close()


def _count(answer: Any) -> int:
    return sum(len(resource.acls) for resource in answer.resources)


def grants_of(rights: Sequence[Right]) -> list[tuple[Grant, ...]]:
    """Nothing, each right alone, and all."""
    each = [Grant(right.operation, right.resource) for right in rights]
    found = [(), *((one,) for one in each), tuple(each)]
    return list(dict.fromkeys(found))
