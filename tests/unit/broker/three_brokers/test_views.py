"""What clients are shown of a cluster: Metadata, DescribeTopicPartitions, DescribeCluster."""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode
from moldau.sim.world import World

from .trio import IDS, TOPIC, Trio, batch

NO_LEADER = -1


async def metadata(trio: Trio, node_id: int, *names: str, **more: Any) -> Any:
    topics = [{"name": name, "topic_id": None} for name in names]
    return await trio.ask(
        node_id, "Metadata", 12, topics=topics, **{"allow_auto_topic_creation": False} | more
    )


async def described(trio: Trio, node_id: int, name: str = TOPIC) -> Any:
    request = {"topics": [{"name": name}], "response_partition_limit": 100, "cursor": None}
    answer = await trio.ask(node_id, "DescribeTopicPartitions", 0, **request)
    return answer.topics[0].partitions[0]


def test_every_broker_tells_who_leads_who_is_in_sync_and_who_is_gone() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(2)
        await trio.start(1, 3)
        await trio.create((1, 2, 3), configs={"min.insync.replicas": "3"})
        await trio.create((1,), topic="lonely")
        trio.kill(1)
        await trio.until(lambda: trio.state(topic="lonely").leader == NO_LEADER, "it is fenced")
        await trio.until(lambda: len(trio.brokers[3].image.brokers) == 2, "all know")
        for node_id in (2, 3):
            answer = await metadata(trio, node_id, TOPIC, "lonely")
            assert sorted(broker.node_id for broker in answer.brokers) == [2, 3]
            assert answer.controller_id == 2
            led, lonely = (topic.partitions[0] for topic in answer.topics)
            assert (led.error_code, led.leader_id) == (ErrorCode.none, 2)
            assert led.leader_epoch == trio.state().leader_epoch
            assert (led.replica_nodes, led.isr_nodes) == ((1, 2, 3), (2, 3))
            assert led.offline_replicas == (1,)
            assert (lonely.error_code, lonely.leader_id) == (ErrorCode.leader_not_available, NO_LEADER)
            assert (lonely.replica_nodes, lonely.isr_nodes, lonely.offline_replicas) == ((1,), (), (1,))
            # Below min.insync.replicas nothing more is committed, so that broker 1 still has all that is (KIP-966).
            assert (await described(trio, node_id)).eligible_leader_replicas == (1,)
            assert (await described(trio, node_id, "lonely")).eligible_leader_replicas == (1,)
            for wants_fenced, expected in (
                (False, {2: False, 3: False}),
                (True, {1: True, 2: False, 3: False}),
            ):
                cluster = await trio.ask(node_id, "DescribeCluster", 2, include_fenced_brokers=wants_fenced)
                assert {broker.broker_id: broker.is_fenced for broker in cluster.brokers} == expected
                assert cluster.controller_id == 2

    with World(1) as world:
        world.run(scene(Trio(world)))


def test_a_topic_made_by_any_broker_is_told_with_a_leader_that_serves() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        for node_id in IDS:
            name = f"made by {node_id}".replace(" ", "-")
            answer = await metadata(trio, node_id, name, allow_auto_topic_creation=True)
            (topic,) = answer.topics
            assert topic.error_code == ErrorCode.none
            leader = topic.partitions[0].leader_id
            data = [{"name": name, "partition_data": [{"index": 0, "records": batch(b"value")}]}]
            produced = await trio.ask(leader, "Produce", 12, acks=-1, timeout=1_000, topic_data=data)
            assert produced.responses[0].partition_responses[0].error_code == ErrorCode.none

    with World(2) as world:
        world.run(scene(Trio(world, lambda _: {"default.replication.factor": "3"})))


def test_while_there_is_no_controller_clients_are_shown_a_broker_that_takes_their_requests() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(1)
        await trio.start(2, 3)
        image = trio.brokers[2].image
        assert (await metadata(trio, 2)).controller_id == 1
        image.brokers.pop(1)  # the controller is known to be dead, and who follows is not
        assert (await metadata(trio, 2)).controller_id == 2

    with World(3) as world:
        world.run(scene(Trio(world)))
