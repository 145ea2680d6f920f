"""What every cluster store guarantees: one suite over every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.zookeeper_ensemble import Ensemble
from moldau.store.port import (
    Check,
    Conflict,
    Create,
    Delete,
    Entry,
    Operation,
    Put,
    SessionEnded,
    Store,
    Unavailable,
    Unknown,
    quoted,
    unquoted,
)

from .ensembles import running_ensemble
from .stores import STAGES, Party, Stage, until, zookeeper_stage


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(
    params=[*STAGES, pytest.param("zookeeper", marks=[pytest.mark.interop, pytest.mark.slow])],
)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    if request.param == "zookeeper":
        return zookeeper_stage(request.getfixturevalue("ensemble").hosts)
    return STAGES[request.param](tmp_path)


class Calls:
    """Counts; a callback that does nothing else."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def settle(party: Party, calls: Calls) -> None:
    """Until the calls for what has happened so far have come: engines may call without a change."""
    before = -1
    while calls.count != before:
        before = calls.count
        await party.sleep(party.quiet_s)


def nothing() -> None:
    pass


# Entries


def test_what_was_written_is_there_after_a_restart(stage: Stage) -> None:
    async def write(party: Party) -> None:
        store = await party.open()
        await store.multi([Create("/a", b"one"), Create("/a/b", b"")])
        await store.multi([Put("/a", b"two", 0)])

    async def read(party: Party) -> None:
        store = await party.open()
        assert await store.get("/a") == Entry("/a", b"two", 1)
        assert await store.get("/a/b") == Entry("/a/b", b"", 0)
        assert await store.get("/absent") is None
        assert await store.get("/absent/deeper") is None

    stage.run(write, read)


def test_children_are_the_entries_directly_below_in_order(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        names = ("/t", "/t/b", "/t/a", "/t/a/deeper", "/tt/x", "/tt/y/z")
        await store.multi([Create(name, name.encode()) for name in names])
        assert [entry.path for entry in await store.children("/t")] == ["/t/a", "/t/b"]
        assert [entry.value for entry in await store.children("/tt")] == [b"/tt/x"]
        assert await store.children("/none") == []

    stage.run(scene)


def test_entries_above_and_below_each_other_are_independent(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        await store.multi([Create("/t/a", b"")])
        assert await store.get("/t") is None
        for operation in (Put("/t", b""), Delete("/t"), Check("/t", 0)):
            with pytest.raises(Conflict):
                await store.multi([operation])
        await store.multi([Create("/t", b"now"), Put("/t", b"then", 0)])
        await store.multi([Delete("/t", 1)])
        assert await store.get("/t/a") == Entry("/t/a", b"", 0)
        await store.multi([Delete("/t/a")])
        await store.multi([Create("/t/a/b/c", b""), Create("/t/a", b"")])
        assert [entry.path for entry in await store.children("/t")] == ["/t/a"]

    stage.run(scene)


@pytest.mark.parametrize(
    "failing",
    [
        Create("/a", b"x"),
        Put("/a", b"x", 7),
        Put("/absent", b"x"),
        Delete("/a", 7),
        Delete("/absent"),
        Check("/a", 7),
        Check("/absent", 0),
    ],
    ids=str,
)
def test_a_condition_that_does_not_hold_changes_nothing(stage: Stage, failing: object) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        await store.multi([Create("/a", b"one"), Create("/a/below", b"")])
        with pytest.raises(Conflict) as conflict:
            await store.multi([Create("/b", b""), Put("/a", b"two", 0), failing, Create("/c", b"")])  # type: ignore[list-item]
        assert conflict.value.path in ("/a", "/absent")
        assert await store.get("/a") == Entry("/a", b"one", 0)
        assert await store.get("/b") is None
        assert await store.get("/c") is None

    stage.run(scene)


def test_a_check_guards_the_others_and_leaves_the_version_alone(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        await store.multi([Create("/guard", b""), Create("/a", b"one")])
        await store.multi([Check("/guard", 0), Put("/a", b"two", 0)])
        assert await store.get("/guard") == Entry("/guard", b"", 0)
        assert await store.get("/a") == Entry("/a", b"two", 1)

    stage.run(scene)


def test_any_version_will_do_where_none_is_asked_for(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        await store.multi([Create("/a", b"1")])
        await store.multi([Put("/a", b"2"), Put("/a", b"3")])
        assert await store.get("/a") == Entry("/a", b"3", 2)
        await store.multi([Delete("/a")])
        assert await store.get("/a") is None

    stage.run(scene)


def test_a_path_that_is_created_again_begins_at_version_0(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        await store.multi([Create("/a", b"1")])
        await store.multi([Put("/a", b"2", 0)])
        await store.multi([Delete("/a", 1), Create("/a", b"3")])
        assert await store.get("/a") == Entry("/a", b"3", 0)

    stage.run(scene)


def test_of_many_who_read_and_put_at_once_exactly_one_wins_each_round(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        stores = [await party.open(), await party.open()]
        await stores[0].multi([Create("/counter", b"0")])

        async def attempt(store: Store) -> bool:
            entry = await store.get("/counter")
            assert entry is not None
            try:
                await store.multi([Put("/counter", str(int(entry.value) + 1).encode(), entry.version)])
            except Conflict:
                return False
            return True

        won = sum(await asyncio.gather(*(attempt(stores[i % 2]) for i in range(20))))
        entry = await stores[0].get("/counter")
        assert entry is not None
        assert won == int(entry.value) == entry.version >= 1

    stage.run(scene)


def test_a_caller_that_is_cancelled_leaves_the_store_whole(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        await store.multi([Create("/a", b"")])
        loop = asyncio.get_running_loop()
        for turns in range(6):
            task = loop.create_task(
                store.multi([Create(f"/c{turns}/{n}", b"x" * 100) for n in range(200)])  # type: ignore[arg-type]
            )
            for _ in range(turns):
                await party.sleep(0)
            task.cancel()
            await store.multi([Put("/a", b"")])
            await asyncio.gather(task, return_exceptions=True)
        for turns in range(6):
            assert len(await store.children(f"/c{turns}")) in (0, 200)
        assert await store.get("/a") == Entry("/a", b"", 6)

    stage.run(scene)


@pytest.mark.parametrize(
    "name", ["plain", "a.b_c-1", "with/slash", "100%", "ünïcode", " ", "zookeeper", ".", ".."]
)
def test_any_name_can_be_part_of_a_path(stage: Stage, name: str) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        await store.multi([Create(f"/groups/{quoted(name)}", b"")])
        (entry,) = await store.children("/groups")
        assert entry.name == name

    assert unquoted(quoted(name)) == name
    assert "/" not in quoted(name) and quoted(name) not in (".", "..")
    stage.run(scene)


# Sessions


def test_an_ephemeral_entry_goes_with_a_session_that_is_ended(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        owner, other = await party.open(), await party.open()
        ended = Calls()
        assert owner.session_id is None
        session_id = await owner.begin_session(ended)
        assert owner.session_id == session_id
        await owner.multi([Create("/live/1", b"a", ephemeral=True), Create("/stays", b"")])
        await owner.multi([Put("/live/1", b"b", 0)])
        await until_equal(party, other, "/live/1", Entry("/live/1", b"b", 1))
        await owner.end_session()
        assert owner.session_id is None
        assert await owner.get("/live/1") is None
        await until_equal(party, other, "/live/1", None)
        assert await other.get("/stays") is not None
        await owner.end_session()
        assert ended.count == 0
        assert await owner.begin_session(nothing) != session_id

    stage.run(scene)


def test_an_ephemeral_entry_goes_when_its_process_is_gone(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        owner, other = await party.open(), await party.open()
        other.watch("/live", nothing)
        await owner.begin_session(nothing)
        await owner.multi([Create("/live/1", b"", ephemeral=True)])
        await until_equal(party, other, "/live/1", Entry("/live/1", b"", 0))
        await party.vanish(owner)
        await until_equal(party, other, "/live/1", None)

    stage.run(scene)


def test_the_next_process_finds_nothing_of_a_dead_one(stage: Stage) -> None:
    async def first(party: Party) -> None:
        store = await party.open()
        await store.begin_session(nothing)
        await store.multi([Create("/live/1", b"", ephemeral=True), Create("/kept", b"")])
        await party.vanish(store)

    async def second(party: Party) -> None:
        store = await party.open()
        await store.begin_session(nothing)
        await until_equal(party, store, "/live/1", None)
        await store.multi([Create("/live/1", b"", ephemeral=True), Check("/kept", 0)])

    stage.run(first, second)


def test_a_session_that_runs_out_is_told_once_and_nothing_is_done_in_its_name(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        owner, other = await party.open(), await party.open()
        ended = Calls()
        other.watch("/live", nothing)
        before = await owner.begin_session(ended)
        await owner.multi([Create("/live/1", b"", ephemeral=True)])
        await until_equal(party, other, "/live/1", Entry("/live/1", b"", 0))
        await party.expire(owner)
        with pytest.raises(SessionEnded):
            await persist(party, owner, Create("/late", b"", ephemeral=True))
        await until_true(party, lambda: ended.count == 1, "the end is told")
        await until_equal(party, other, "/live/1", None)
        assert owner.session_id is None
        with pytest.raises(SessionEnded):
            await persist(party, owner, Create("/late", b"", ephemeral=True))
        await until_equal(party, owner, "/late", None)
        assert await owner.begin_session(nothing) != before
        await owner.multi([Create("/live/1", b"again", ephemeral=True)])
        await until_equal(party, other, "/live/1", Entry("/live/1", b"again", 0))
        assert ended.count == 1

    stage.run(scene)


def test_whoever_wakes_in_an_ended_session_writes_nothing_at_all(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        owner = await party.open()
        ended = Calls()
        await owner.multi([Create("/state", b"")])
        await owner.begin_session(ended)
        await party.expire(owner)
        while not ended.count:
            try:
                await owner.multi([Put("/state", b"late")])
            except SessionEnded:
                assert ended.count == 1
            except (Unavailable, Unknown):
                await party.sleep(0.01)
        await until_equal(party, owner, "/state", Entry("/state", b"", 0))
        await persist(party, owner, Put("/state", b"without a session"))

    stage.run(scene)


def test_a_live_session_outlasts_its_time_out(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        owner, other = await party.open(), await party.open()
        ended = Calls()
        other.watch("/live", nothing)
        session_id = await owner.begin_session(ended)
        await owner.multi([Create("/live/1", b"", ephemeral=True)])
        await party.sleep(2 * party.session_timeout_s)
        await until_equal(party, other, "/live/1", Entry("/live/1", b"", 0))
        assert owner.session_id == session_id
        assert ended.count == 0

    stage.run(scene)


# Watches


@pytest.mark.parametrize("watched", ["/a/b", "/a"])
def test_a_watch_is_called_after_every_kind_of_change(stage: Stage, watched: str) -> None:
    async def scene(party: Party) -> None:
        writer, reader = await party.open(), await party.open()
        calls = Calls()
        reader.watch(watched, calls)
        await settle(party, calls)
        for operation in (Create("/a/b", b""), Put("/a/b", b"2"), Delete("/a/b"), Create("/a/b", b"")):
            before = calls.count
            await writer.multi([operation])
            await until_true(party, lambda: calls.count > before, f"a call after {operation}")  # noqa: B023
            await settle(party, calls)

    stage.run(scene)


def test_a_watch_is_called_for_what_its_own_process_does_too(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        store = await party.open()
        calls = Calls()
        store.watch("/a", calls)
        await settle(party, calls)
        before = calls.count
        await store.multi([Create("/a/b", b"")])
        await until_true(party, lambda: calls.count > before, "a call")

    stage.run(scene)


def test_whoever_reads_again_at_each_call_ends_up_with_what_is_there(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        writer, reader = await party.open(), await party.open()
        changed = asyncio.Event()
        reader.watch("/n", changed.set)
        seen: list[list[Entry]] = [[]]

        async def read() -> None:
            while True:
                await changed.wait()
                changed.clear()
                seen.append(await reader.children("/n"))

        reading = asyncio.get_running_loop().create_task(read())
        await writer.begin_session(nothing)
        await writer.multi([Create("/n/0", b"", ephemeral=True)])
        for number in range(1, 20):
            await writer.multi([Create(f"/n/{number}", b""), Put("/n/0", b"%d" % number)])
            if number % 3 == 0:
                await writer.multi([Delete(f"/n/{number - 1}")])
        last = await writer.children("/n")
        await until_true(party, lambda: seen[-1] == last, "the last state is seen")
        await writer.end_session()
        last = [entry for entry in last if entry.path != "/n/0"]
        await until_true(party, lambda: seen[-1] == last, "the session's end is seen")
        reading.cancel()

    stage.run(scene)


def test_a_watch_is_called_when_a_dead_process_loses_its_entry(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        owner, reader = await party.open(), await party.open()
        calls = Calls()
        await owner.begin_session(nothing)
        await owner.multi([Create("/live/1", b"", ephemeral=True)])
        reader.watch("/live", calls)
        await settle(party, calls)
        before = calls.count
        await party.vanish(owner)
        await until_true(party, lambda: calls.count > before, "a call")

    stage.run(scene)


def test_a_cancelled_watch_is_not_called_again(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        writer, reader = await party.open(), await party.open()
        calls, others = Calls(), Calls()
        watch = reader.watch("/a", calls)
        reader.watch("/a", others)
        await settle(party, others)
        watch.cancel()
        watch.cancel()
        before, others_before = calls.count, others.count
        await writer.multi([Create("/a", b"")])
        await until_true(party, lambda: others.count > others_before, "the other is called")
        assert calls.count == before

    stage.run(scene)


# Elections


def test_whoever_stood_first_leads_and_the_next_follows(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        stores = [await party.open() for _ in range(3)]
        assert await stores[0].first("/election") is None
        candidacies = []
        first = Calls()
        for number, store in enumerate(stores):
            await store.begin_session(nothing)
            candidacies.append(await store.stand("/election", b"%d" % number, first))
        await candidacies[0].won()
        assert [candidacy.is_first for candidacy in candidacies] == [True, False, False]
        assert [candidacy.path for candidacy in candidacies] == sorted(c.path for c in candidacies)
        leader = await stores[2].first("/election")
        assert leader is not None and leader.value == b"0"
        await candidacies[0].withdraw()
        await candidacies[0].withdraw()
        await candidacies[1].won()
        assert [candidacy.is_first for candidacy in candidacies] == [False, True, False]
        await until_true(party, lambda: first.count == 2, "both are told")
        again = await stores[0].stand("/election", b"again")
        await party.vanish(stores[1])
        await candidacies[2].won()
        await stores[2].end_session()
        await again.won()
        assert not candidacies[2].is_first

    stage.run(scene)


def test_one_who_leaves_the_middle_makes_nobody_first(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        stores = [await party.open() for _ in range(3)]
        for store in stores:
            await store.begin_session(nothing)
        candidacies = [await store.stand("/election", b"") for store in stores]
        await candidacies[0].won()
        await candidacies[1].withdraw()
        await party.sleep(0.3)
        assert not candidacies[2].is_first
        with pytest.raises(SessionEnded):
            await candidacies[1].won()
        await candidacies[0].withdraw()
        await candidacies[2].won()

    stage.run(scene)


def test_a_candidacy_ends_with_its_session(stage: Stage) -> None:
    async def scene(party: Party) -> None:
        one, two = await party.open(), await party.open()
        ended = Calls()
        await one.begin_session(ended)
        await two.begin_session(nothing)
        with pytest.raises(SessionEnded):
            await (await party.open()).stand("/election", b"")
        before, after = await one.stand("/election", b"1"), await two.stand("/election", b"2")
        await before.won()
        await party.expire(one)
        await after.won()
        await until_true(party, lambda: ended.count == 1, "the end is told")
        assert not before.is_first
        with pytest.raises(SessionEnded):
            await before.won()
        await before.withdraw()

    stage.run(scene)


async def persist(party: Party, store: Store, operation: Operation) -> None:
    """Try until it is known whether it can be done: a connection may be lost with a session."""
    for _ in range(6000):
        try:
            await store.multi([operation])
            return
        except (Unavailable, Unknown):
            await party.sleep(0.01)
    raise AssertionError("the store does not come back")


async def until_equal(party: Party, store: Store, path: str, expected: Entry | None) -> None:
    async def is_equal() -> bool:
        try:
            return await store.get(path) == expected
        except Unavailable:
            return False

    await until(party, is_equal, f"{path} is {expected}")


async def until_true(party: Party, condition: object, what: str) -> None:
    async def holds() -> bool:
        return bool(condition())  # type: ignore[operator]

    await until(party, holds, what)
