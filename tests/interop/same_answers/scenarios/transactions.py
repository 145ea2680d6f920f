"""Transactions: producers and their epochs, both versions of the protocol, markers, and what readers are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..batches import batch
from ..conversation import Conversation, scenario
from ..peers import Both, Peer
from .group_offsets import offset

INIT, ADD, END, END_OWN, DESCRIBE, PRODUCE = 4, 3, 4, 5, 0, 11
"""The versions in which other scenarios ask. EndTxn 5 gives each transaction an epoch of its own."""
TIMEOUT_MS = 60_000
ONE_EPOCH_BELOW = 12  # of Produce: from here on brokers add partitions themselves
OPEN = ("PrepareCommit", "PrepareAbort")


class Transactional:
    """One transactional id on both brokers, which have their own producer ids for it."""

    def __init__(self, talk: Conversation, label: str = "tx") -> None:
        self.talk = talk
        self.id = talk.name(label)
        self.producer_id = Both(-1, -1)
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def ask(self, case: str, api: str, version: int, values: dict[str, Any], **more: Any) -> Both:
        version = self.talk.version if api == self.talk.api else version
        return self.talk.ask(f"{self.talk.api}: {case}", values, api=api, version=version, **more)

    def find(self) -> None:
        """Both are ready to coordinate it."""

        def ready(peer: Peer) -> bool:
            values = {"key": self.id, "key_type": 1}
            if self.talk.pair.ask_one(peer, "FindCoordinator", 3, values).error_code:
                return False
            values = {"transactional_ids": [self.id]}
            answer = self.talk.pair.ask_one(peer, "DescribeTransactions", DESCRIBE, values)
            return answer.transaction_states[0].error_code.name in ("transactional_id_not_found", "none")

        self.talk.wait_for(f"coordinator of {self.id}", ready)

    def init(
        self,
        case: str,
        *,
        own: bool = False,
        version: int | None = None,
        timeout_ms: int = TIMEOUT_MS,
        **values: Any,
    ) -> None:
        """`own` names the producer as it is, which goes on after an error."""
        request = {"transactional_id": self.id, "transaction_timeout": timeout_ms}
        if own:
            request |= {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        version = INIT if version is None else version
        answers = self.ask(case, "InitProducerId", version, {**request, **values}, adjust=_epoch_only)
        if isinstance(answers.moldau, str) or answers.moldau.error_code or answers.kafka.error_code:
            return
        self.producer_id = answers.map(lambda answer: answer.producer_id)
        self.epoch = answers.moldau.producer_epoch
        self.sequences.clear()
        self.talk.pair.both(lambda peer: peer.producer_names.update({self.producer_id.of(peer): self.id}))

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def add(self, case: str, *places: tuple[str, list[int]], version: int = ADD, **values: Any) -> None:
        version = self.talk.version if self.talk.api == "AddPartitionsToTxn" else version
        topics = [{"name": name, "partitions": indexes} for name, indexes in places]
        fields = {**self.fields, **values}
        if version >= 4:
            request: dict[str, Any] = {"transactions": [{"verify_only": False, **fields, "topics": topics}]}
        else:
            request = {f"v3_and_below_{key}": value for key, value in fields.items()}
            request["v3_and_below_topics"] = topics
        self.ask(case, "AddPartitionsToTxn", version, request, adjust=_added_in_order)

    def add_offsets(self, case: str, group: str, **values: Any) -> None:
        self.ask(case, "AddOffsetsToTxn", 3, {**self.fields, "group_id": group, **values})

    def end(
        self, case: str, *, commit: bool, version: int = END, settles: bool = True, **values: Any
    ) -> None:
        fields = {**self.fields, "committed": commit, **values}
        answers = self.ask(case, "EndTxn", version, fields)
        if not isinstance(answers.moldau, str) and getattr(answers.moldau, "producer_epoch", -1) >= 0:
            self.epoch = answers.moldau.producer_epoch
            self.sequences.clear()
        if settles:
            self.settle()

    def settle(self) -> None:
        """Until the markers are written on both."""

        def settled(peer: Peer) -> bool:
            values = {"transactional_ids": [self.id]}
            answer = self.talk.pair.ask_one(peer, "DescribeTransactions", DESCRIBE, values)
            return answer.transaction_states[0].transaction_state not in OPEN

        self.talk.wait_for(f"end of {self.id}", settled)

    def batch(self, topic: str, index: int, *values: bytes, **fields: Any) -> Both:
        sequence = fields.pop("sequence", self.sequences.get((topic, index), 0))
        epoch = fields.pop("epoch", self.epoch)
        self.sequences[topic, index] = sequence + len(values)
        return self.producer_id.map(
            lambda producer_id: batch(
                *values,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
                **fields,
            )
        )

    def produce(
        self, case: str, topic: str, index: int, *values: bytes, version: int | None = None, **fields: Any
    ) -> None:
        own = self.talk.api == "Produce"
        version = version or (self.talk.version if own else PRODUCE)
        transactional_id = fields.pop("transactional_id", self.id)
        row = {"index": index, "records": self.batch(topic, index, *values, **fields)}
        name = self.talk.named(topic, ids_from=13, version=version)
        request = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [{**name, "partition_data": [row]}],
        }
        self.talk.ask(f"{self.talk.api}: {case}", request, api="Produce", version=version)

    def describe(self, case: str) -> None:
        self.ask(case, "DescribeTransactions", DESCRIBE, {"transactional_ids": [self.id]}, adjust=_described)

    def commit_offsets(
        self, case: str, group: str, topic: str, *offsets: tuple[int, int], version: int = 3, **values: Any
    ) -> None:
        request = {
            **self.fields,
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": [offset(index, value) for index, value in offsets]}],
        }
        self.ask(case, "TxnOffsetCommit", version, {**request, **values})


def _epoch_only(tree: Any) -> Any:
    tree["producer_id"] = "<given>" if tree["producer_id"] != -1 else -1
    return tree


def _added_in_order(tree: Any) -> Any:
    """Kafka answers in the order of a hash table."""
    for result in tree.get(
        "results_by_transaction", [{"topic_results": tree.get("results_by_topic_v3_and_below", [])}]
    ):
        result["topic_results"].sort(key=lambda topic: topic["name"])
        for topic in result["topic_results"]:
            topic["results_by_partition"].sort(key=lambda partition: partition["partition_index"])
    return tree


def _described(tree: Any) -> Any:
    for state in tree["transaction_states"]:
        state["topics"].sort(key=lambda topic: topic["topic"])
        for topic in state["topics"]:
            topic["partitions"].sort()
    return tree


@contextmanager
def transactional(talk: Conversation, label: str = "tx") -> Iterator[Transactional]:
    found = Transactional(talk, label)
    found.find()
    yield found
    found.settle()


@scenario("InitProducerId", "with a transactional id")
def init(talk: Conversation) -> None:
    with transactional(talk) as tx:
        topic = talk.topic("t")
        for timeout_ms in (0, -1, 900_001):
            tx.init(f"a time-out of {timeout_ms}", timeout_ms=timeout_ms)
        tx.init("first", timeout_ms=900_000)
        tx.init("again")
        tx.describe("after two")
        if talk.version >= 3:
            tx.init("it goes on", own=True)
            tx.init("the epoch before, again", own=True, producer_epoch=tx.epoch - 1)
            tx.init("an older epoch", own=True, producer_epoch=0)
            tx.init("a later epoch", own=True, producer_epoch=tx.epoch + 5)
            tx.init("another id", producer_id=10_000_000, producer_epoch=0)
            tx.init("half an identity", producer_id=10_000_000, producer_epoch=-1)
            tx.init("the other half", producer_epoch=3)
        old = dict(tx.fields)
        tx.add("open", (topic, [0]))
        tx.init("while one is open")
        tx.settle()
        tx.describe("after it was fenced")
        if talk.version >= 3:
            tx.init("the fenced one goes on", own=True)
            tx.settle()
        tx.init("then")
        tx.describe("then")
        tx.add("the old one adds", (topic, [0]), producer_epoch=old["producer_epoch"])
        tx.end("the old one ends", commit=True, producer_epoch=old["producer_epoch"])


@scenario("InitProducerId", "a forgotten id goes on", versions=[3, 4, 5])
def init_forgotten(talk: Conversation) -> None:
    with transactional(talk) as tx:
        tx.init("named", producer_id=77_000_000, producer_epoch=5)
        tx.describe("named")


@scenario("AddPartitionsToTxn", "answers")
def add_partitions(talk: Conversation) -> None:
    with transactional(talk) as tx:
        topic, other, missing = talk.topic("t", 3), talk.topic("u"), talk.name("missing")
        tx.add("nobody", (topic, [0]))
        tx.init("begin")
        tx.add("nothing")
        tx.describe("nothing")
        tx.add("one", (topic, [0]))
        tx.add("one again", (topic, [0]))
        tx.add("more", (topic, [0, 1]), (other, [0]))
        tx.describe("more")
        tx.add("a topic twice", (topic, [0]), (other, [0]), (topic, [1]))
        tx.add("a partition twice", (topic, [1, 0, 1]))
        tx.add("no such partition", (topic, [2, 7]))
        tx.add("no such topic", (topic, [2]), (missing, [0]))
        if talk.version < 4:  # later ones are sent by brokers
            tx.add("a coordinator's own topic", (topic, [2]), ("__consumer_offsets", [0]))
            tx.add("the other coordinator's", ("__transaction_state", [0]))
        tx.add("another producer", (topic, [0]), producer_id=10_000_000)
        tx.add("an older epoch", (topic, [0]), producer_epoch=-1)
        tx.add("a later epoch", (topic, [0]), producer_epoch=99)
        tx.add("an id that is not there", (topic, [0]), transactional_id=talk.name("nobody"))
        tx.add("no id", (topic, [0]), transactional_id="")
        if talk.version >= 4:
            tx.add("verify", (topic, [0, 1, 2]), verify_only=True)
            tx.add("verify another producer", (topic, [0]), verify_only=True, producer_id=10_000_000)
            tx.add("verify another epoch", (topic, [0]), verify_only=True, producer_epoch=99)
            tx.add("verify what is not there", (missing, [0]), (topic, [0]), verify_only=True)
            tx.add("verify nobody", (topic, [0]), verify_only=True, transactional_id=talk.name("nobody"))
        tx.end("the end", commit=False)
        tx.add("the next one", (other, [0]))
        tx.describe("the next one")


@scenario("AddOffsetsToTxn", "answers")
def add_offsets(talk: Conversation) -> None:
    with transactional(talk) as tx:
        group = talk.name("g")
        tx.add_offsets("nobody", group)
        tx.init("begin")
        tx.add_offsets("one", group)
        tx.add_offsets("one again", group)
        tx.add_offsets("no group", "")
        tx.add_offsets("another producer", group, producer_id=10_000_000)
        tx.add_offsets("a later epoch", group, producer_epoch=9)
        tx.add_offsets("no id", group, transactional_id="")
        tx.end("the end", commit=True)


@scenario("EndTxn", "answers")
def end(talk: Conversation) -> None:
    with transactional(talk) as tx:
        topic = talk.topic("t", 2)
        tx.end("nobody", commit=True)
        tx.end("no id", commit=True, transactional_id="")
        tx.init("begin")
        tx.end("commit nothing", commit=True)
        tx.end("abort nothing", commit=False)
        tx.describe("after nothing")
        tx.end("abort nothing again", commit=False)
        for commit in (True, False):
            own = 4 if talk.version >= 5 else ADD
            tx.add("add", (topic, [0, 1]), version=own)
            before = tx.epoch
            tx.end("another producer", commit=commit, producer_id=10_000_000)
            tx.end("an older epoch", commit=commit, producer_epoch=before - 1)
            tx.end("a later epoch", commit=commit, producer_epoch=before + 3)
            tx.end(f"commit={commit}", commit=commit)
            tx.describe(f"after commit={commit}")
            now = tx.epoch
            tx.end("a retry", commit=commit, producer_epoch=before)
            tx.epoch = now
            tx.end("a retry of the other kind", commit=not commit, producer_epoch=before)
            tx.epoch = now
            tx.end("the next epoch", commit=commit)
            tx.describe("after the next epoch")
        talk.ask(
            f"{talk.api}: the markers",
            _fetch(topic, 0),
            api="Fetch",
            version=11,
            decoded=True,
            adjust=_markers,
        )


@scenario("EndTxn", "fenced by a new producer")
def end_fenced(talk: Conversation) -> None:
    with transactional(talk) as tx:
        topic = talk.topic("t")
        for commit in (True, False):
            tx.init("begin")
            tx.add("open", (topic, [0]), version=4 if talk.version >= 5 else ADD)
            old = tx.epoch
            tx.init("another comes")
            tx.settle()
            tx.describe("fenced")
            tx.end(f"the old one, commit={commit}", commit=commit, producer_epoch=old)
            tx.epoch = old
            tx.init("the next")


def _fetch(
    topic: str, index: int, *, start: int = 0, isolation: int = 0, max_bytes: int = 1 << 20
) -> dict[str, Any]:
    row = {"partition": index, "fetch_offset": start, "partition_max_bytes": max_bytes}
    return {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 25,
        "isolation_level": isolation,
        "topics": [{"topic": topic, "partitions": [row]}],
    }


def _markers(tree: Any) -> Any:
    """Markers have the time of now, and the epoch of the coordinator of each cluster."""
    for topic in tree["responses"]:
        for partition in topic["partitions"]:
            for found in partition["records"] or ():
                if found["attributes"] & 0x20:
                    found["base_timestamp"] = found["max_timestamp"] = "<now>"
                found["producer_id"] = "<given>" if found["producer_id"] >= 0 else -1
    return tree


@scenario("Fetch", "of transactions")
def fetch_transactions(talk: Conversation) -> None:
    """Two producers, interleaved: what read_committed sees, and what it is told to leave out."""
    topic = talk.topic("t")

    def look(case: str, start: int = 0, **values: Any) -> None:
        for isolation in (0, 1):
            row = {"partition": 0, "fetch_offset": start, "partition_max_bytes": 1 << 20}
            request = _fetch(topic, 0, isolation=isolation)
            name = talk.named(topic, ids_from=13, key="topic")
            request["topics"] = [{**name, "partitions": [row]}]
            talk.ask(f"{case}, isolation {isolation}", request | values, decoded=True, adjust=_markers)

    with transactional(talk, "one") as one, transactional(talk, "two") as two:
        one.init("begin")
        two.init("begin")
        talk.ask(f"{talk.api}: plain", _plain(topic), api="Produce", version=9)
        look("plain")
        one.add("one", (topic, [0]))
        one.produce("one", topic, 0, b"a", b"b")
        look("one open")
        two.add("two", (topic, [0]))
        two.produce("two", topic, 0, b"c")
        talk.ask(f"{talk.api}: plain between", _plain(topic), api="Produce", version=9)
        look("both open")
        look("both open, from within", 2)
        one.end("one", commit=False)
        look("one aborted")
        two.end("two", commit=True)
        look("both ended")
        look("both ended, from within", 3)
        two.add("two", (topic, [0]))
        two.produce("two", topic, 0, b"d")
        two.end("two", commit=False)
        look("two aborted")
        for start in range(9):
            look(f"from {start}", start)
        talk.ask(
            f"{talk.api}: producers",
            {"topics": [{"name": topic, "partition_indexes": [0]}]},
            api="DescribeProducers",
            version=0,
            adjust=_producers,
        )
        for isolation in (0, 1):
            row = {"partition_index": 0, "timestamp": -1}
            values = {
                "replica_id": -1,
                "isolation_level": isolation,
                "topics": [{"name": topic, "partitions": [row]}],
            }
            talk.ask(f"{talk.api}: end, isolation {isolation}", values, api="ListOffsets", version=7)


def _plain(topic: str) -> dict[str, Any]:
    row = {"index": 0, "records": batch(b"plain")}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 5_000,
        "topic_data": [{"name": topic, "partition_data": [row]}],
    }


def _producers(tree: Any) -> Any:
    for topic in tree["topics"]:
        for partition in topic["partitions"]:
            for producer in partition["active_producers"]:
                producer["last_timestamp"] = "<a time>"
                producer["coordinator_epoch"] = "<an epoch>" if producer["coordinator_epoch"] >= 0 else -1
            partition["active_producers"].sort(key=lambda producer: str(producer["producer_id"]))
    return tree


@scenario("ListOffsets", "of transactions", versions=range(2, 12))
def list_offsets(talk: Conversation) -> None:
    topic = talk.topic("t")
    with transactional(talk) as tx:
        tx.init("begin")
        talk.ask(f"{talk.api}: plain", _plain(topic), api="Produce", version=9)
        tx.add("open", (topic, [0]))
        tx.produce("open", topic, 0, b"a", b"b")
        talk.ask(f"{talk.api}: plain", _plain(topic), api="Produce", version=9)

        def look(case: str) -> None:
            for isolation in (0, 1):
                for timestamp in (-1, -2, 0, 1 << 60):
                    row = {"partition_index": 0, "timestamp": timestamp}
                    topics = [{"name": topic, "partitions": [row]}]
                    values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
                    talk.ask(f"{case}, isolation {isolation}, {timestamp}", values)

        look("open")
        tx.end("end", commit=False)
        look("aborted")


@scenario("DescribeProducers", "with transactions")
def describe_producers(talk: Conversation) -> None:
    topic = talk.topic("t")
    wanted = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    with transactional(talk) as tx:
        tx.init("begin")
        tx.add("open", (topic, [0]))
        tx.produce("open", topic, 0, b"a", b"b")
        talk.ask("open", wanted, adjust=_producers)
        tx.end("commit", commit=True)
        talk.ask("committed", wanted, adjust=_producers)
        tx.produce("of the next, by version 12", topic, 0, b"c", version=12)
        talk.ask("open again", wanted, adjust=_producers)
        tx.end("abort", commit=False, version=END_OWN)
        talk.ask("aborted with an epoch of its own", wanted, adjust=_producers)


@scenario("Produce", "transactions")
def produce_transactions(talk: Conversation) -> None:
    adds = talk.version >= ONE_EPOCH_BELOW
    end_version = END_OWN if adds else END
    topic, other = talk.topic("t", 2), talk.topic("u")
    with transactional(talk) as tx:
        tx.init("begin")
        tx.produce("that was not added", topic, 0, b"a")
        tx.describe("then")
        tx.sequences.clear()
        if not adds:
            tx.add("add", (topic, [0]))
        tx.produce("the first", topic, 0, b"a", b"b")
        tx.produce("the second", topic, 0, b"c")
        tx.produce("a retry of the first", topic, 0, b"a", b"b", sequence=0)
        tx.produce("a gap", topic, 0, b"x", sequence=17)
        tx.sequences[topic, 0] = 3
        tx.produce("an older epoch", topic, 1, b"x", epoch=-1)
        tx.produce("a later epoch", topic, 1, b"x", epoch=7)
        tx.produce("a later epoch where it is open", topic, 0, b"x", epoch=7, sequence=0)
        tx.produce("no transactional id", topic, 0, b"x", sequence=3, transactional_id=None)
        tx.produce(
            "another transactional id", topic, 1, b"x", sequence=0, transactional_id=talk.name("nobody")
        )
        tx.produce("an empty transactional id", topic, 1, b"x", sequence=0, transactional_id="")
        tx.produce("a first sequence that is none", other, 0, b"x", sequence=4)
        tx.describe("open")
        tx.end("commit", commit=True, version=end_version)
        before = tx.epoch - 1 if adds else tx.epoch
        tx.produce("after the end, as before", topic, 0, b"late", sequence=3, epoch=before)
        tx.describe("after the end")
        tx.settle()
        if not adds:
            tx.sequences[topic, 0] = 3
            tx.add("add", (topic, [0, 1]))
        tx.produce("the next one", topic, 1, b"d", sequence=0)
        tx.produce("the next one in the first", topic, 0, b"e")
        tx.end("abort", commit=False, version=end_version)
        for index in (0, 1):
            talk.ask(
                f"{talk.api}: stored in {index}",
                _fetch(topic, index, isolation=1),
                api="Fetch",
                version=11,
                decoded=True,
                adjust=_markers,
            )
        tx.describe("at the end")


@scenario("WriteTxnMarkers", "answers")
def write_markers(talk: Conversation) -> None:
    topic, missing = talk.topic("t", 2), talk.name("missing")

    def ask(case: str, *markers: dict[str, Any]) -> None:
        talk.ask(case, {"markers": list(markers)}, adjust=_in_order)

    with transactional(talk) as tx:
        tx.init("begin")
        tx.init("again, for an epoch with one before it")
        tx.add("add", (topic, [0, 1]))
        tx.produce("open", topic, 0, b"a")

        def marker(epoch: int = 1, commit: bool = False, by: int = -1, **values: Any) -> dict[str, Any]:
            topics = [{"name": topic, "partition_indexes": [0]}]
            fields = {
                "producer_id": tx.producer_id,
                "producer_epoch": epoch,
                "transaction_result": commit,
                "coordinator_epoch": by,
                "topics": topics,
                "transaction_version": 0,
            }
            return fields | values

        ask("nothing")
        ask("an older epoch", marker(0))
        ask("a negative epoch", marker(-1))
        ask("a negative producer id", marker(producer_id=-1))
        ask("no such topic", marker(topics=[{"name": missing, "partition_indexes": [0]}]))
        ask("no such partition", marker(topics=[{"name": topic, "partition_indexes": [0, 7]}]))
        ask("no partitions", marker(topics=[]))
        ask("again", marker())
        ask("by a coordinator", marker(2, by=4))
        ask("by an older coordinator", marker(2, by=3))
        ask("of a producer that is not there", marker(producer_id=55_000_000))
        if talk.version >= 2:
            ask("version 2, the same epoch", marker(2, by=9, transaction_version=2))
            ask("version 2, the next epoch", marker(3, by=9, transaction_version=2))
            ask("version 2, an older epoch", marker(2, by=9, transaction_version=2))
        wanted = {"topics": [{"name": topic, "partition_indexes": [0, 1]}]}
        talk.ask(f"{talk.api}: producers", wanted, api="DescribeProducers", version=0, adjust=_without_times)
        fetched = _fetch(topic, 0, isolation=1)
        talk.ask(f"{talk.api}: stored", fetched, api="Fetch", version=11, decoded=True, adjust=_markers)


def _without_times(tree: Any) -> Any:
    for topic in tree["topics"]:
        for partition in topic["partitions"]:
            for producer in partition["active_producers"]:
                producer["last_timestamp"] = "<a time>"
            partition["active_producers"].sort(key=lambda producer: str(producer["producer_id"]))
    return tree


def _in_order(tree: Any) -> Any:
    for marker in tree["markers"]:
        for topic in marker["topics"]:
            topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return tree


@scenario("DescribeTransactions", "answers")
def describe(talk: Conversation) -> None:
    topic = talk.topic("t", 2)
    with transactional(talk) as tx:

        def ask(case: str, *ids: str) -> None:
            talk.ask(case, {"transactional_ids": list(ids)}, adjust=_described)

        ask("nothing")
        ask("an empty id", "")
        ask("nobody", tx.id)
        tx.init("begin", timeout_ms=30_000)
        ask("empty", tx.id)
        tx.add("add", (topic, [0, 1]))
        ask("ongoing", tx.id, talk.name("nobody"))
        tx.end("commit", commit=True)
        ask("committed", tx.id, tx.id)


@scenario("ListTransactions", "answers")
def list_transactions(talk: Conversation) -> None:
    topic = talk.topic("t")
    mine = talk.name("")

    def listed(tree: Any) -> Any:
        """Other scenarios' ids are there too."""
        found = [state for state in tree["transaction_states"] if state["transactional_id"].startswith(mine)]
        tree["transaction_states"] = sorted(found, key=lambda state: str(state["transactional_id"]))
        return tree

    with transactional(talk, "one") as one, transactional(talk, "two") as two:
        one.init("begin")
        two.init("begin")
        two.add("add", (topic, [0]))

        def ask(case: str, **values: Any) -> None:
            fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
            talk.ask(case, fields | values, adjust=listed)

        ask("all")
        for state in ("Ongoing", "Empty", "CompleteCommit", "ongoing", "Nothing", "Dead"):
            ask(f"state {state}", state_filters=[state])
        ask("two states", state_filters=["Ongoing", "Empty", "Nothing"])
        ask("a producer", producer_id_filters=[two.producer_id])
        ask("a producer that is not there", producer_id_filters=[66_000_000])
        if talk.version >= 1:
            ask("for an hour", duration_filter=3_600_000)
            ask("for no time", duration_filter=0)
        if talk.version >= 2:
            for pattern in ("", ".*", mine + "o.*", "one", "[", "(?=a)b", "a|" + mine + "two"):
                ask(f"pattern {pattern!r}", transactional_id_pattern=pattern)


@scenario("FindCoordinator", "transactional ids", versions=range(1, 7))
def find_coordinator(talk: Conversation) -> None:
    def ask(case: str, *keys: str) -> None:
        values = {"key": keys[0] if keys else "", "coordinator_keys": list(keys), "key_type": 1}
        talk.ask(case, values)

    ask("one", talk.name("tx"))
    ask("an empty id", "")
    if talk.version >= 4:
        ask("several", "one", "two", "", "two")
