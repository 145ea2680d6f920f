"""Every step of a transaction where it does not fit: while one is being ended, and from epochs that are over."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..conversation import Conversation, scenario
from ..peers import Both, Peer
from .group_offsets import offset
from .transactions import (
    ADD,
    DESCRIBE,
    END,
    END_OWN,
    ONE_EPOCH_BELOW,
    TIMEOUT_MS,
    Transactional,
    transactional,
)

ADD_OWN = 4


class Hanging(Transactional):
    """A transaction whose end hangs: the log has seen a later epoch of its producer, and refuses the marker."""

    def __init__(self, talk: Conversation, topic: str, *, commit: bool) -> None:
        super().__init__(talk, f"commit-{commit}")
        self.find()
        for _ in range(3):
            self.init("begin")
        self.ended_epoch = self.epoch
        self.add("add", (topic, [0, 1]), version=ADD_OWN if talk.version >= END_OWN else ADD)
        self._overtake(topic)
        self.end(f"commit={commit}", commit=commit, settles=False)
        self.epoch = self.ended_epoch
        talk.wait_for("the markers that can be written", lambda peer: self._unmarked(peer) == [0])
        self.describe("hanging")

    def _overtake(self, topic: str) -> None:
        later = self.producer_id.map(
            lambda producer_id: batch(
                b"v", producer_id=producer_id, producer_epoch=self.epoch + 7, base_sequence=0
            )
        )
        produce_one(self.talk, "a later epoch", topic, 0, later)

    def _unmarked(self, peer: Peer) -> list[int]:
        values = {"transactional_ids": [self.id]}
        (state,) = self.talk.pair.ask_one(peer, "DescribeTransactions", DESCRIBE, values).transaction_states
        return [index for topic in state.topics for index in topic.partitions]


def produce_one(talk: Conversation, case: str, topic: str, index: int, records: Both) -> None:
    """Without a transactional id."""
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 5_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": records}]}],
    }
    talk.ask(f"{talk.api}: {case}", values, api="Produce", version=11)


def _whether_given(tree: Any) -> Any:
    return tree | {"producer_id": isinstance(tree["producer_id"], str) or tree["producer_id"] >= 0}


@scenario("EndTxn", "while it is being ended", versions=[END, END_OWN])
def while_ended(talk: Conversation) -> None:
    topic, group = talk.topic("t", 3), talk.name("g")
    for commit in (True, False):
        tx = Hanging(talk, topic, commit=commit)
        for ahead in (-1, 0, 1):
            _ask_all(tx, f"commit={commit}, epoch {ahead:+}", topic, group, tx.ended_epoch + ahead)
        tx.init("another producer")
        tx.init("one that is not known", version=5, producer_id=77, producer_epoch=1)
        tx.describe("still hanging")


def _ask_all(tx: Transactional, case: str, topic: str, group: str, epoch: int) -> None:
    """Every step of a producer that says to have an epoch."""
    talk, fields = tx.talk, {**tx.fields, "producer_epoch": epoch}
    for version in (1, END, END_OWN):
        for commit in (True, False):
            talk.ask(f"{case}, commit={commit}", {**fields, "committed": commit}, version=version)
    for version in (1, ADD, ADD_OWN):
        tx.add(f"{case}, add", (topic, [1]), version=version, producer_epoch=epoch)
    tx.add(f"{case}, verify", (topic, [1]), version=ADD_OWN, producer_epoch=epoch, verify_only=True)
    for version in (1, 4):
        values = {**fields, "group_id": group}
        talk.ask(f"{case}, offsets", values, api="AddOffsetsToTxn", version=version)
    for version in (3, 4, 5):
        rows = [{"name": topic, "partitions": [offset(0, 5)]}]
        values = {**fields, "group_id": group, "generation_id": -1, "member_id": "", "topics": rows}
        talk.ask(f"{case}, offset commit", values, api="TxnOffsetCommit", version=version)
    for version in (9, 11, 12):
        for index in (0, 2):
            tx.produce(f"{case}, to {index}", topic, index, b"v", version=version, epoch=epoch, sequence=0)
    values = {**fields, "transaction_timeout": TIMEOUT_MS}
    for version in (3, 5):
        talk.ask(f"{case}, init", values, api="InitProducerId", version=version, adjust=_whether_given)


@scenario("Produce", "epochs that are over")
def epochs_that_are_over(talk: Conversation) -> None:
    adds = talk.version >= ONE_EPOCH_BELOW
    topic, stranger = talk.topic("t"), {"transactional_id": talk.name("nobody")}
    with transactional(talk) as tx:
        for _ in range(3):
            tx.init("begin")
        epoch = tx.epoch
        if not adds:
            tx.add("add", (topic, [0]))
        tx.produce("the first", topic, 0, b"a")
        tx.produce("an older epoch", topic, 0, b"x", epoch=epoch - 1, sequence=0)
        tx.produce("an older epoch of a stranger", topic, 0, b"x", epoch=epoch - 1, sequence=0, **stranger)
        tx.produce("a stranger in an open transaction", topic, 0, b"b", sequence=1, **stranger)
        tx.end("end", commit=True, version=END_OWN if adds else END)
        tx.produce("an older epoch, ended", topic, 0, b"x", epoch=epoch - 1, sequence=0)
        tx.produce("a stranger, ended", topic, 0, b"x", epoch=epoch - 1, sequence=0, **stranger)


@scenario("TxnOffsetCommit", "epochs that are over")
def offsets_of_epochs_that_are_over(talk: Conversation) -> None:
    adds = talk.version >= 5
    topic, group, stranger = talk.topic("t"), talk.name("g"), {"transactional_id": talk.name("nobody")}
    with transactional(talk) as tx:
        for _ in range(3):
            tx.init("begin")
        older = {"producer_epoch": tx.epoch - 1}
        if not adds:
            tx.add_offsets("add", group)
        tx.commit_offsets("the first", group, topic, (0, 5))
        tx.commit_offsets("an older epoch", group, topic, (0, 6), **older)
        tx.commit_offsets("an older epoch of a stranger", group, topic, (0, 6), **older, **stranger)
        tx.commit_offsets("a stranger in an open transaction", group, topic, (0, 7), **stranger)
        tx.end("end", commit=True, version=END_OWN if adds else END)
        tx.commit_offsets("a stranger, ended", group, topic, (0, 6), **older, **stranger)


@scenario("Produce", "of several kinds", versions=[9, 11, 12])
def of_several_kinds(talk: Conversation) -> None:
    """Transactional and plain batches in one request, and what is looked at first."""
    topic = talk.topic("t", 6)
    with transactional(talk, "one") as one, transactional(talk, "two") as two:
        one.init("begin")
        two.init("begin")

        def ask(case: str, *rows: tuple[int, Any], acks: int = -1, to: str = topic) -> None:
            partitions = [{"index": index, "records": records} for index, records in rows]
            data = [{"name": to, "partition_data": partitions}]
            values = {"transactional_id": one.id, "acks": acks, "timeout": 5_000, "topic_data": data}
            talk.ask(case, values, adjust=_by_index)

        if talk.version < ONE_EPOCH_BELOW:
            one.add("add", (topic, [0]))
        ask("added and not", (0, one.batch(topic, 0, b"a")), (1, one.batch(topic, 1, b"b")))
        ask("transactional and plain", (0, one.batch(topic, 0, b"c")), (2, batch(b"plain")))
        ask("two producers", (0, one.batch(topic, 0, b"d")), (4, two.batch(topic, 4, b"e")))
        ask("no such acks", (5, one.batch(topic, 5, b"f")), acks=2)
        for name in ("__consumer_offsets", "__transaction_state"):
            ask(f"to {name}", (0, one.batch(name, 0, b"g")), to=name)
        one.describe("then")


def _by_index(tree: Any) -> Any:
    """Kafka answers in the order of a hash table."""
    for topic in tree["responses"]:
        topic["partition_responses"].sort(key=lambda partition: partition["index"])
    return tree
