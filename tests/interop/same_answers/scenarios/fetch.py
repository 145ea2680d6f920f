"""Fetch: what is read within which limits, sessions, long polls, and what is refused."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..conversation import NO_SUCH_ID, Conversation, scenario
from ..peers import Both

READ_COMMITTED = 1
WAIT_MS = 700
SESSIONS_FROM, LEADER_EPOCHS_FROM, FLEXIBLE_FROM, TOPIC_IDS_FROM, REPLICA_STATE_FROM = 7, 9, 12, 13, 15
SIZES = 10, 200, 3000


def topic_of(talk: Conversation, name: str, *partitions: dict[str, Any]) -> dict[str, Any]:
    defaults = {"fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    return {
        **talk.named(name, ids_from=TOPIC_IDS_FROM, key="topic"),
        "partitions": [defaults | partition for partition in partitions],
    }


def request(*topics: dict[str, Any], **values: Any) -> dict[str, Any]:
    usual = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 22, "session_epoch": -1}
    return {**usual, "topics": list(topics), **values}


def fetch(talk: Conversation, case: str, *topics: dict[str, Any], **values: Any) -> Both:
    return talk.ask(case, request(*topics, **values), adjust=in_order)


def in_order(tree: Any) -> Any:
    """Kafka may name a topic twice, and answers refused partitions after the others; a client takes them by name."""
    topics: dict[str, Any] = {}
    for topic in tree["responses"]:
        name = str(topic.get("topic", topic.get("topic_id")))
        topics.setdefault(name, topic | {"partitions": []})["partitions"] += topic["partitions"]
    for topic in topics.values():
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return tree | {"responses": [topics[name] for name in sorted(topics)]}


def fill(talk: Conversation, name: str, partition: int, *values: bytes) -> None:
    """Put one record a batch into a partition."""
    for value in values:
        data = [{"name": name, "partition_data": [{"index": partition, "records": batch(value)}]}]
        wanted = {"acks": -1, "timeout": 5000, "topic_data": data}
        talk.ask(f"filling {name}", wanted, api="Produce", version=9)


def filled(talk: Conversation, label: str, partitions: int = 2) -> str:
    name = talk.topic(label, partitions)
    for partition in range(partitions):
        fill(talk, name, partition, *(b"x" * size for size in SIZES))
    return name


@scenario("Fetch", "within limits")
def limits(talk: Conversation) -> None:
    name, empty = filled(talk, "full"), talk.topic("empty")

    def read(case: str, *partitions: dict[str, Any], **values: Any) -> None:
        fetch(talk, case, topic_of(talk, name, *partitions), **values)

    for offset in 0, 1, 2, 3:
        read(f"from {offset}", {"partition": 0, "fetch_offset": offset})
    first, second = {"partition": 0}, {"partition": 1}
    read("both", first, second)
    read("both, the other way round", second, first)
    read("the same partition twice", first, {"partition": 0, "fetch_offset": 2})
    for limit in 0, 1, 50, 100, 101, 300, 1000, -1:
        limited = {"partition_max_bytes": limit}
        read(f"partition limit {limit}", first | limited, second | limited)
        read(f"partition limit {limit} from the large one", {"partition": 0, "fetch_offset": 2} | limited)
        read(f"limit {limit}", first, second, max_bytes=limit)
        read(
            f"limit {limit} from the large one", {"partition": 0, "fetch_offset": 2}, second, max_bytes=limit
        )
    read("an end and a beginning, limited", {"partition": 0, "fetch_offset": 3}, second, max_bytes=1)
    read("read committed", first, second, isolation_level=READ_COMMITTED)
    read("an isolation level that is none", first, isolation_level=5)
    fetch(talk, "an empty topic", topic_of(talk, empty, first))
    fetch(talk, "several topics", topic_of(talk, empty, first), topic_of(talk, name, first, second))
    fetch(talk, "no topics")
    fetch(talk, "no partitions", topic_of(talk, name))
    fetch(talk, "a topic twice", topic_of(talk, name, first), topic_of(talk, name, second))
    wide = {"partition": 0, "log_start_offset": 5, "last_fetched_epoch": -1}
    read("a log start offset of a follower's", wide)


@scenario("Fetch", "refused")
def refused(talk: Conversation) -> None:
    name = filled(talk, "topic", 1)
    first, good = {"partition": 0}, topic_of(talk, name, {"partition": 0})

    def read(case: str, *partitions: dict[str, Any], **values: Any) -> None:
        fetch(talk, case, topic_of(talk, name, *partitions), **values)

    for offset in 4, 1 << 40, -1, -2:
        read(f"offset {offset}", {"partition": 0, "fetch_offset": offset})
    read("offset 4, read committed", {"partition": 0, "fetch_offset": 4}, isolation_level=READ_COMMITTED)
    read("partitions that are not there", {"partition": 9}, {"partition": -1}, first)
    missing = topic_of(talk, talk.name("missing"), first)
    fetch(talk, "a topic that is not there", missing)
    fetch(talk, "a topic that is not there, and one that is", missing, good)
    if talk.version < TOPIC_IDS_FROM:
        fetch(talk, "an invalid name", topic_of(talk, "no spaces", first), good)
    else:
        nobody = {"topic_id": None, "partitions": good["partitions"]}
        fetch(talk, "no topic id", nobody)
        fetch(talk, "no topic id, and a good one", nobody, good)
    for epoch in -2, 0, 1, 1000:
        read(f"leader epoch {epoch}", {"partition": 0, "current_leader_epoch": epoch})
    for epoch in 0, 1, 5:
        for offset in 0, 3, 9:
            diverging = {"partition": 0, "fetch_offset": offset, "last_fetched_epoch": epoch}
            read(f"last fetched epoch {epoch} at {offset}", diverging)
            read(
                f"last fetched epoch {epoch} at {offset} under epoch 0",
                diverging | {"current_leader_epoch": 0},
            )
    for replica in 1, 5, -2:
        state = {"replica_state": {"replica_id": replica, "replica_epoch": -1}, "replica_id": replica}
        read(f"replica {replica}", first, **state)
    read("a preferred rack", first, rack_id="rack")
    read("another cluster", first, cluster_id="another")


@scenario("Fetch", "sessions", versions=range(SESSIONS_FROM, 19))
def sessions(talk: Conversation) -> None:
    name, other = filled(talk, "topic", 3), talk.topic("other")
    p0, p1, p2 = ({"partition": index} for index in range(3))
    answers = fetch(talk, "a new session", topic_of(talk, name, p0, p1), session_epoch=0)
    session = answers.map(lambda answer: answer.session_id)

    def go_on(case: str, epoch: int, *topics: dict[str, Any], **values: Any) -> Both:
        return fetch(talk, case, *topics, session_id=session, session_epoch=epoch, **values)

    go_on("all again", 1)
    ends = [{"partition": index, "fetch_offset": 3} for index in range(3)]
    go_on("at the ends", 2, topic_of(talk, name, *ends[:2]))
    go_on("nothing new", 3)
    fill(talk, name, 1, b"new")
    go_on("one has grown", 4)
    go_on("the same again", 5)
    go_on("a partition more", 6, topic_of(talk, name, p2))
    go_on("a topic more", 7, topic_of(talk, other, p0))
    go_on("unknown ones more", 8, topic_of(talk, name, {"partition": 9}), topic_of(talk, talk.name("no"), p0))
    go_on("the unknown ones again", 9)
    forgotten = [{**talk.named(name, ids_from=TOPIC_IDS_FROM, key="topic"), "partitions": [0, 9]}]
    go_on("forgetting", 10, forgotten_topics_data=forgotten)
    go_on("after forgetting", 11)
    go_on("an old epoch", 11)
    go_on("a new epoch", 50)
    go_on("the right epoch", 12)
    go_on("out of range", 13, topic_of(talk, name, {"partition": 2, "fetch_offset": 77}))
    go_on("still out of range", 14)
    go_on("limited", 15, topic_of(talk, name, p0, p1, p2), max_bytes=1)
    for round_ in range(4):
        go_on(f"limited, round {round_}", 16 + round_, max_bytes=1)
    fetch(talk, "an unknown id", session_id=123456789, session_epoch=5)
    fetch(
        talk, "an unknown id, from the start", topic_of(talk, name, p0), session_id=123456789, session_epoch=0
    )
    fetch(talk, "an epoch without an id", topic_of(talk, name, p0), session_id=0, session_epoch=3)
    fetch(talk, "an epoch below -1", topic_of(talk, name, p0), session_id=0, session_epoch=-2)
    again = go_on("replaced", 0, topic_of(talk, name, p0)).map(lambda answer: answer.session_id)
    go_on("the old one is gone", 20)
    fetch(talk, "closed", session_id=again, session_epoch=-1)
    fetch(talk, "after closing", session_id=again, session_epoch=1)
    fetch(talk, "a new one with nothing in it", session_epoch=0)
    fetch(talk, "a new one with an unknown topic", topic_of(talk, talk.name("no"), p0), session_epoch=0)
    lone = fetch(talk, "a new one, of one", topic_of(talk, other, p0), session_epoch=0)
    session = lone.map(lambda answer: answer.session_id)
    everything = [{**talk.named(other, ids_from=TOPIC_IDS_FROM, key="topic"), "partitions": [0]}]
    go_on("forgetting everything", 1, forgotten_topics_data=everything)
    go_on("after everything is forgotten", 2)


@scenario("Fetch", "a session of another kind", versions=[12, 13])
def other_session(talk: Conversation) -> None:
    name, first = filled(talk, "topic", 1), {"partition": 0}
    made = fetch(talk, "a new session", topic_of(talk, name, first), session_epoch=0)
    session = made.map(lambda answer: answer.session_id)
    version = 13 if talk.version == 12 else 12
    wanted = request(session_id=session, session_epoch=1)
    talk.ask("the other way to name topics", wanted, version=version)
    talk.ask("and back", wanted)
    talk.ask("and back, the next epoch", wanted | {"session_epoch": 2})


@scenario("Fetch", "waiting", versions=[4, 11, 12, 13, 18])
def waiting(talk: Conversation) -> None:
    name, first = filled(talk, "topic", 2), {"partition": 0}
    end = {"partition": 0, "fetch_offset": 3}
    other = {"partition": 1, "fetch_offset": 3}

    def read(case: str, *partitions: dict[str, Any], **values: Any) -> None:
        topics = [topic_of(talk, name, *partitions)] if partitions else []
        talk.ask_timed(
            case, request(*topics, **({"max_wait": WAIT_MS, "min_bytes": 1} | values)), adjust=in_order
        )

    read("something there", first)
    read("nothing there", end, other)
    read("too little there", first, min_bytes=100_000)
    read("just enough there", first, min_bytes=100)
    read("no least", end, min_bytes=0)
    read("no time", end, max_wait=0)
    read("nothing there, and an error", end, {"partition": 9})
    read("out of range", {"partition": 0, "fetch_offset": 9})
    read("nothing asked")
    read("more wanted than may be sent", first, min_bytes=1000, max_bytes=50)


@scenario("Fetch", "by an unknown id", versions=range(TOPIC_IDS_FROM, 19))
def unknown_id(talk: Conversation) -> None:
    wanted = {"topic_id": NO_SUCH_ID, "partitions": [{"partition": 0, "partition_max_bytes": 100}]}
    made = fetch(talk, "in a new session", wanted, session_epoch=0)
    session = made.map(lambda answer: answer.session_id)
    fetch(talk, "and again", session_id=session, session_epoch=1)
    talk.ask_timed("and waiting", request(session_id=session, session_epoch=2, max_wait=WAIT_MS, min_bytes=1))
