"""Who leads a partition and where it is: ElectLeaders and the reassignments, as one broker alone answers them."""

from __future__ import annotations

from typing import Any

from ..conversation import Conversation, scenario

PREFERRED, UNCLEAN = 0, 1
TIMEOUT = {"timeout": 10_000}


def without_topics_of_others(talk: Conversation) -> Any:
    """Of an answer about all topics, those of this conversation, whose names begin alike, in their order."""

    def adjust(tree: Any) -> Any:
        own = [
            result for result in tree["replica_election_results"] if result["topic"].startswith(talk.name(""))
        ]
        return tree | {"replica_election_results": sorted(own, key=lambda result: result["topic"])}

    return adjust


@scenario("ElectLeaders", "one broker")
def elect_leaders(talk: Conversation) -> None:
    there, other, missing = talk.topic("there", 3), talk.topic("other"), talk.name("missing")

    def ask(case: str, election: int, *topics: tuple[str, list[int]]) -> None:
        wanted = [{"topic": name, "partitions": indexes} for name, indexes in topics]
        talk.ask(case, {"election_type": election, "topic_partitions": wanted, **TIMEOUT})

    for name, election in {"preferred": PREFERRED, "unclean": UNCLEAN, "type 2": 2, "type -1": -1}.items():
        ask(f"{name}, led", election, (there, [0, 1, 2]), (other, [0]))
        ask(f"{name}, absent", election, (there, [3, -1]), (missing, [0]), ("", [0]), ("no spaces", [0]))
        ask(f"{name}, twice", election, (there, [1, 1]), (there, [0]))
        ask(f"{name}, none of a topic", election, (there, []))
        ask(f"{name}, none", election)
        everything = {"election_type": election, "topic_partitions": None, **TIMEOUT}
        talk.ask(f"{name}, all", everything, adjust=without_topics_of_others(talk))


@scenario("AlterPartitionReassignments", "one broker")
def alter_partition_reassignments(talk: Conversation) -> None:
    there, missing = talk.topic("there", 2), talk.name("missing")

    def ask(case: str, *topics: tuple[str, list[tuple[int, list[int] | None]]]) -> None:
        for allowed in True, False:
            wanted = [
                {
                    "name": name,
                    "partitions": [{"partition_index": index, "replicas": ids} for index, ids in partitions],
                }
                for name, partitions in topics
            ]
            request = {"topics": wanted, "allow_replication_factor_change": allowed, **TIMEOUT}
            talk.ask(f"{case}, change {'allowed' if allowed else 'refused'}", request)

    ask("where they are", (there, [(0, [1]), (1, [1])]))
    ask("cancelled", (there, [(0, None), (1, None)]))
    ask("nowhere", (there, [(0, [])]))
    ask("to others", (there, [(0, [2]), (1, [1, 2])]))
    ask("to a broker twice", (there, [(0, [1, 1])]))
    ask("to a negative broker", (there, [(0, [-1]), (0, [1, -1])]))
    ask("absent", (there, [(2, [1]), (-1, None)]), (missing, [(0, [1])]), ("", [(0, None)]))
    ask("good beside bad", (there, [(0, [9]), (1, [1])]))
    ask("twice", (there, [(0, [1]), (0, None)]), (there, [(0, [1])]))
    ask("none of a topic", (there, []))
    ask("none")


@scenario("ListPartitionReassignments", "one broker")
def list_partition_reassignments(talk: Conversation) -> None:
    there, missing = talk.topic("there", 2), talk.name("missing")

    def ask(case: str, topics: list[tuple[str, list[int]]] | None) -> None:
        wanted = topics and [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
        talk.ask(case, {"topics": wanted, **TIMEOUT})

    ask("all", None)
    ask("none", [])
    ask("some", [(there, [0, 1])])
    ask("none of a topic", [(there, [])])
    ask("absent", [(there, [2, -1]), (missing, [0]), ("", [0])])
