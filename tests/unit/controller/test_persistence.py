"""The image and the store stay in step: one fence, whole topics, and nothing left lying about."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any
from uuid import UUID

import pytest

from moldau.controller import layout
from moldau.controller.loading import load_image
from moldau.controller.persistence import ATTEMPTS_MAX, Fenced, PersistentImage, check_layout
from moldau.controller.writes import BYTES_PER_STEP, OPERATIONS_PER_STEP
from moldau.metadata.image import ClusterImage, image_from, snapshot_of
from moldau.metadata.records import (
    NOWHERE,
    BrokerChanged,
    BrokerInfo,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    Delta,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    Position,
    ProducerIdsAllocated,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)
from moldau.sim.random import SimRandom
from moldau.store.memory import MemoryStore, Tree
from moldau.store.port import Create, Delete, Entry, Put, TooNew

from .stores import TroubledStore

ONE, TWO = UUID(int=1), UUID(int=2)
STATE = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
ODD = STATE._replace(
    leader=-1,
    isr=(),
    elr=(2,),
    last_known_elr=(1,),
    adding=(3,),
    removing=(1,),
    recovering=True,
    offline=(3,),
)
BROKER = BrokerInfo(
    1, {"A": ("h", 1), "B": None}, "r", 7, UUID(int=9), True, True, (UUID(int=4), UUID(int=5)), "boot"
)


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


async def take_over(store: MemoryStore, **options: Any) -> PersistentImage:
    return await PersistentImage.take_over(store, SimRandom(len(store.tree.entries)), 1, **options)


async def write(state: PersistentImage, *records: Record) -> list[Delta]:
    return [delta async for delta in state.write(records)]


def topic(name: str, count: int = 1, topic_id: UUID = ONE, **configs: str) -> TopicCreated:
    return TopicCreated(name, topic_id, (STATE,) * count, configs)


def changed(index: int, state: PartitionState = STATE) -> PartitionsChanged:
    return PartitionsChanged("a", ONE, {index: state._replace(partition_epoch=state.partition_epoch + 1)})


async def assert_as_stored(state: PersistentImage, store: MemoryStore) -> None:
    """What the store says is what the image says, with nothing besides."""
    stored = await load_image(store)
    assert stored.position == state.image.position
    for mine, found in zip(ordered(state.image), ordered(stored), strict=True):
        assert mine == found
    entries = {path for path in store.tree.entries if path.startswith(layout.PARTITIONS)}
    expected = set()
    for held in state.image.topics.values():
        expected |= {layout.partition_path(held.topic_id, index) for index in range(len(held.partitions))}
    assert entries == expected


def ordered(image: ClusterImage) -> list[str]:
    records = [
        record for record in snapshot_of(image).records if not type(record).__name__.startswith("Contr")
    ]
    return sorted(map(str, records))


RECORDS: list[list[Record]] = [
    [BrokerRegistered(BROKER), BrokerRegistered(BROKER._replace(id=2))],
    [BrokerChanged(1, 7, is_fenced=False, is_shutting_down=False)],
    [topic("a", 3, retention_ms="5"), topic("with space/", 1, TWO)],
    [PartitionsAdded("a", ONE, (STATE, ODD))],
    [changed(0), changed(3), changed(4, ODD)],
    [ConfigChanged(ConfigResource(ResourceType.TOPIC, "a"), {"flush.ms": "7"})],
    [ConfigChanged(ConfigResource(ResourceType.BROKER, ""), {"x": "1"})],
    [
        ConfigChanged(ConfigResource(ResourceType.BROKER, ""), {}),
        ConfigChanged(ConfigResource(ResourceType.BROKER, ""), {"x": "2"}),
        ConfigChanged(ConfigResource(ResourceType.GROUP, "g/1"), {"y": "2"}),
        ConfigChanged(ConfigResource(ResourceType.TOPIC, "a"), {}),
    ],
    [ProducerIdsAllocated(4000), BrokerUnregistered(2)],
    [TopicDeleted("a", ONE), topic("a", 2, UUID(int=3), flush_ms="3")],
    [TopicDeleted("with space/", TWO)],
]


def test_whatever_is_written_is_there_for_the_next_controller() -> None:
    async def scene() -> None:
        store = MemoryStore()
        state = await take_over(store)
        for records in RECORDS:
            before = state.image.position
            (delta,) = await write(state, *records)
            assert delta.records == tuple(records)
            assert delta.position == state.image.position == Position(1, before.sequence + 1)
            await assert_as_stored(state, store)
        after = await take_over(store)
        assert ordered(after.image) == ordered(state.image)
        assert after.image.position == Position(2, state.image.position.sequence + 1)
        assert (after.image.controller_id, after.image.controller_epoch) == (1, 2)

    run(scene())


def test_a_store_says_which_layout_it_has_and_a_later_one_is_refused() -> None:
    async def scene() -> None:
        store = MemoryStore()
        await check_layout(store)  # it is empty
        await take_over(store)
        entry = await store.get(layout.LAYOUT)
        number = b"%d" % layout.LAYOUT_VERSION
        assert entry is not None and entry.value == number
        await check_layout(store)

        await store.multi([Delete(layout.LAYOUT)])  # as before it had a number
        await check_layout(store)
        await take_over(store)
        assert await store.get(layout.LAYOUT) == Entry(layout.LAYOUT, number, 0)

        await store.multi([Put(layout.LAYOUT, b"1")])  # an older version's
        await check_layout(store)
        await take_over(store)
        assert await store.get(layout.LAYOUT) == Entry(layout.LAYOUT, number, 2)

        await store.multi([Put(layout.LAYOUT, b"1000")])
        with pytest.raises(
            TooNew, match=f"has layout 1000, and this version knows {layout.LAYOUT_VERSION} at most"
        ):
            await check_layout(store)
        before = await store.get(layout.STATE)
        with pytest.raises(TooNew):  # a later version has been the controller since this one began
            await take_over(store)
        assert await store.get(layout.STATE) == before

        await store.multi([Put(layout.LAYOUT, b"\xff\xfe")])
        with pytest.raises(OSError, match=r"entry /cluster/layout is damaged: it has b'.*', and no number"):
            await check_layout(store)

    run(scene())


def test_a_controller_that_was_replaced_changes_nothing() -> None:
    async def scene() -> None:
        store = MemoryStore()
        old = await take_over(store)
        new = await take_over(store)
        with pytest.raises(Fenced):
            await write(old, topic("a"))
        assert not old.image.topics
        await write(new, topic("a"))
        await assert_as_stored(new, store)

    run(scene())


def test_of_two_who_take_over_at_once_one_is_fenced() -> None:
    async def scene() -> None:
        tree = Tree()

        class Slow(MemoryStore):
            async def get(self, path: str) -> Entry | None:
                entry = await super().get(path)
                await asyncio.sleep(0)
                return entry

        first, second = await asyncio.gather(
            take_over(Slow(tree)), take_over(Slow(tree)), return_exceptions=True
        )
        assert {type(first), type(second)} == {PersistentImage, Fenced}

    run(scene())


@pytest.mark.parametrize(
    ("troubles", "blind", "outcome"),
    [
        (["late"], 0, "done"),
        (["lost"], 0, "done"),
        (["lost", "late"], 0, "done"),
        (["late"], 1, "done"),
        (["lost", "lost", "full"], 2, "done"),
        (["lost"] * ATTEMPTS_MAX, 0, "fenced"),
        (["full"], 0, "refused"),
    ],
)
def test_a_write_whose_outcome_is_not_known_is_found_out(
    troubles: list[str], blind: int, outcome: str
) -> None:
    async def scene() -> None:
        store = TroubledStore()
        state = await take_over(store)
        store.troubles, store.blind = list(troubles), blind
        if outcome == "done":
            await write(state, topic("a"))
            assert list(state.image.topics) == ["a"]
        else:
            with pytest.raises(Fenced if outcome == "fenced" else OSError):
                await write(state, topic("a"))
            assert not state.image.topics
        store.troubles, store.blind = [], 0
        if outcome != "fenced":
            await write(state, topic("b", topic_id=TWO))
            await assert_as_stored(state, store)

    run(scene())


@pytest.mark.parametrize("trouble", ["lost", "late"])
def test_a_claim_whose_outcome_is_not_known_is_found_out(trouble: str) -> None:
    async def scene() -> None:
        store = TroubledStore()
        store.troubles = [trouble]
        state = await take_over(store)
        await write(state, topic("a"))
        await assert_as_stored(state, store)

    run(scene())


def test_where_another_was_faster_meanwhile_an_unknown_write_is_not_done_again() -> None:
    async def scene() -> None:
        tree = Tree()
        store = TroubledStore(tree)
        pauses: list[float] = []

        async def meanwhile(seconds: float) -> None:
            if seconds:  # else it only lets others run
                pauses.append(seconds)
                await take_over(MemoryStore(tree))

        state = await take_over(store, pause=meanwhile)
        store.troubles = ["lost"]
        with pytest.raises(Fenced):
            await write(state, topic("a"))
        assert len(pauses) == 1
        assert "/topics/a" not in tree.entries

    run(scene())


BIG = OPERATIONS_PER_STEP * 2 + 5


def test_a_long_change_is_cut_into_writes_that_fit() -> None:
    async def scene() -> None:
        store = TroubledStore()
        state = await take_over(store)
        created = await write(state, topic("a", BIG))
        assert [len(delta.records) for delta in created] == [0, 0, 1]
        states = {index: STATE._replace(partition_epoch=1) for index in range(BIG)}
        moved = await write(state, PartitionsChanged("a", ONE, states))
        assert len(moved) == 3
        deleted = await write(state, TopicDeleted("a", ONE))
        assert [len(delta.records) for delta in deleted] == [1, 0, 0]
        assert [delta.sequence for delta in created + moved + deleted] == list(range(2, 11))
        for operations in store.writes:
            assert len(operations) <= 500
            assert sum(len(getattr(operation, "value", b"")) for operation in operations) <= BYTES_PER_STEP
        await assert_as_stored(state, store)

    run(scene())


def test_large_values_are_cut_by_their_size() -> None:
    async def scene() -> None:
        store = TroubledStore()
        state = await take_over(store)
        settings = {"k": "v" * 100_000}
        records = [ConfigChanged(ConfigResource(ResourceType.GROUP, f"g{n}"), settings) for n in range(5)]
        assert len(await write(state, *records)) == 3
        await assert_as_stored(state, store)

    run(scene())


STEPS: list[tuple[str, Record]] = [
    ("create", topic("a", BIG, a="b")),
    ("add", PartitionsAdded("b", TWO, (STATE,) * BIG)),
    ("delete", TopicDeleted("c", UUID(int=3))),
]


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize(("what", "record"), STEPS, ids=[what for what, _ in STEPS])
@pytest.mark.parametrize("goes_on", [True, False])
def test_an_interrupted_change_leaves_nothing_behind(
    what: str, record: Record, step: int, goes_on: bool
) -> None:
    async def scene() -> None:
        store = TroubledStore()
        state = await take_over(store)
        await write(state, topic("b", 1, TWO))
        await write(state, topic("c", BIG, UUID(int=3), x="y"))
        store.troubles = [""] * step + ["full"]
        with pytest.raises(OSError):
            await write(state, record)
        seen = {"create": "a" in state.image.topics, "delete": "c" not in state.image.topics}
        assert seen == {"create": False, "delete": what == "delete" and step > 0}
        if not goes_on:
            state = await take_over(store, warm=image_from(snapshot_of(state.image)))
        elif not seen["delete"]:
            await write(state, record)
        else:
            await write(state, ProducerIdsAllocated(1))
        await assert_as_stored(state, store)

    run(scene())


def test_a_warm_image_at_the_stored_position_saves_the_reading() -> None:
    async def scene() -> None:
        tree = Tree()
        state = await take_over(MemoryStore(tree))
        await write(state, topic("a"))
        warm = image_from(snapshot_of(state.image))

        class Unread(MemoryStore):
            reads = 0

            async def children(self, path: str) -> list[Entry]:
                self.reads += 1
                return await super().children(path)

        store = Unread(tree)
        after = await take_over(store, warm=warm)
        assert store.reads == 0
        assert (after.base, [delta.position for delta in after.begun]) == (warm.position, [Position(2, 3)])
        for delta in after.begun:
            warm.apply_delta(delta)
        assert snapshot_of(warm) == snapshot_of(after.image)
        stale = image_from(snapshot_of(after.image))
        await write(after, topic("b", topic_id=TWO))
        later = await take_over(store, warm=stale)
        assert store.reads > 0
        assert list(later.image.topics) == ["a", "b"]

    run(scene())


def test_a_new_cluster_is_at_the_beginning() -> None:
    async def scene() -> None:
        state = await take_over(MemoryStore())
        assert (state.base, state.image.position) == (NOWHERE, Position(1, 1))

    run(scene())


def old_topic(topic_id: UUID, count: int) -> bytes:
    state = {"leader": 1, "leader_epoch": 3, "replicas": [1], "isr": [1], "partition_epoch": 4}
    return json.dumps({"id": topic_id.hex, "partitions": [state] * count}).encode()


@pytest.mark.parametrize("interrupted_at", [None, 0, 1, 2])
def test_a_data_folder_of_the_layout_before_is_taken_over(interrupted_at: int | None) -> None:
    async def scene() -> None:
        store = TroubledStore()
        await store.multi(
            [
                Create("/cluster/id", b"old"),
                Create("/producer_ids/next_block", b"2000"),
                Create("/brokers/1/log_dirs", b"{}"),
                Create("/topics/a", old_topic(ONE, BIG)),
                Create("/topics/b", old_topic(TWO, 2)),
                Create("/configs/topics/a", b'{"flush.ms":"7"}'),
                Create("/configs/brokers/default", b'{"x":"1"}'),
            ]
        )
        if interrupted_at is not None:
            store.troubles = ["", *[""] * interrupted_at, "full"]
            with pytest.raises(OSError):
                await take_over(store)
        state = await take_over(store)
        image = state.image
        assert (image.cluster_id, image.next_producer_id) == ("old", 2000)
        assert image.topics["a"].partitions == (PartitionState(1, 3, (1,), (1,), 4),) * BIG
        assert len(image.topics["b"].partitions) == 2
        assert image.topics["a"].configs == {"flush.ms": "7"}
        assert image.broker_configs == {"": {"x": "1"}}
        await assert_as_stored(state, store)
        await write(state, changed(0, image.topics["a"].partitions[0]), TopicDeleted("b", TWO))
        await assert_as_stored(state, store)
        assert "/brokers/1/log_dirs" in store.tree.entries

    run(scene())


@pytest.mark.parametrize(
    "garbage",
    [
        [f"/partitions/0/{ONE.hex}-0", f"/partitions/0/{ONE.hex}-1"],
        [f"/partitions/0/{TWO.hex}-1", f"/partitions/0/{TWO.hex}-2"],
        ["/configs/topics/nowhere"],
    ],
)
def test_what_nobody_refers_to_is_removed_by_the_next_controller(garbage: Sequence[str]) -> None:
    async def scene() -> None:
        store = MemoryStore()
        await write(await take_over(store), topic("b", 1, TWO))
        await store.multi([Create(path, b"{}") for path in garbage])
        state = await take_over(store)
        assert not set(garbage) & set(store.tree.entries)
        await assert_as_stored(state, store)

    run(scene())
