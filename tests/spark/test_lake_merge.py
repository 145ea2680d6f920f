"""Change data: whatever the order, however often, the table is what a plain model says."""

from __future__ import annotations

import datetime
import os
import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from moldau.spark.lake import delta
from moldau.spark.lake.history import BadChange
from moldau.spark.lake.maintenance import maintain
from moldau.spark.lake.merge import Changes, apply_changes, merge, state_path
from moldau.spark.lake.options import Transaction
from spark import delta_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("ROUNDS", "4"))

Event = tuple[int, int, bool, str | None, float | None]
"""Key, sequence, deleted, a tracked value, an untracked one."""
SCHEMA = pa.schema(
    [
        ("Key id", pa.string()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("__sequence", pa.int64()),
        ("__deleted", pa.bool_()),
    ]
)


def table_of(events: list[Event]) -> pa.Table:
    rows = [
        {"Key id": str(key), "name": name, "score": score, "__sequence": sequence, "__deleted": deleted}
        for key, sequence, deleted, name, score in events
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def changes(scd_type: int) -> Changes:
    if scd_type == 1:
        return Changes(("Key id",), "unused")
    return Changes(("Key id",), "unused", stored_as_scd_type=2, track_history_except_column_list=("score",))


def model(events: list[Event], scd_type: int) -> set[Any]:
    """What the table has to be, by the book: one key at a time, in the order of sequences."""
    rows: set[Any] = set()
    for key in {event[0] for event in events}:
        by_sequence: dict[int, Event] = {}
        for event in events:
            if event[0] == key and not (event[1] in by_sequence and by_sequence[event[1]][2]):
                by_sequence[event[1]] = event
        history = [by_sequence[sequence] for sequence in sorted(by_sequence)]
        if scd_type == 1:
            if not history[-1][2]:
                rows.add((str(key), history[-1][3], history[-1][4]))
            continue
        opened: tuple[Any, ...] | None = None
        for _, sequence, deleted, name, score in history:
            if opened is not None and (deleted or name != opened[1]):
                rows.add((*opened, sequence))
                opened = None
            if not deleted:
                opened = (str(key), name, score, opened[3] if opened else sequence)
        if opened is not None:
            rows.add((*opened, None))
    return rows


def rows_of(path: Path) -> list[Any]:
    return [tuple(row.values()) for row in delta_reader.rows_of(path)]


def random_events(chance: random.Random) -> list[Event]:
    """One event per key and sequence, except that a deletion may share its sequence with an upsert."""
    events: list[Event] = []
    for key in range(6):
        for sequence in chance.sample(range(100), chance.randrange(1, 14)):
            value = chance.choice(["a", "b", None]), chance.choice([1.0, 2.0, None])
            if chance.random() < 0.7:
                events.append((key, sequence, False, *value))
            if events[-1:] != [(key, sequence, False, *value)] or chance.random() < 0.1:
                events.append((key, sequence, True, None, None))
    return events


class Crash(Exception):
    pass


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_shuffled_doubled_late_and_replayed_events_give_what_the_model_says(
    tmp_path: Path, scd_type: int, round_number: int, pytestconfig: pytest.Config
) -> None:
    chance = random.Random(int(pytestconfig.getoption("--seed") or 0) + round_number)
    events = random_events(chance)
    sent = events + chance.sample(events, len(events) // 3)
    chance.shuffle(sent)
    cuts = sorted(chance.sample(range(1, len(sent)), min(4, len(sent) - 1)))
    batches = [sent[start:after] for start, after in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    seen: list[Event] = []
    for number, batch in enumerate(batches):
        seen += batch
        transaction = Transaction("flow", number)
        if chance.random() < 0.5:
            die_at = chance.choice(["merge starts", "state is merged", "merge ends"])
            with suppress(Crash):  # a batch without anything new takes fewer steps
                merge(table_of(batch), changes(scd_type), str(tmp_path), transaction, reached=dying(die_at))
        merge(table_of(batch), changes(scd_type), str(tmp_path), transaction)
        found = rows_of(tmp_path)
        assert len(found) == len(set(found)) and set(found) == model(seen, scd_type)
        if chance.random() < 0.3:
            maintain(str(tmp_path), 1 << 20, 0)
    for number, batch in enumerate(batches):
        merge(table_of(batch), changes(scd_type), str(tmp_path), Transaction("flow", number))
        merge(table_of(batch), changes(scd_type), str(tmp_path), Transaction("another flow", number))
    assert set(rows_of(tmp_path)) == model(events, scd_type)


def dying(at: str) -> Any:
    def reached(step: str) -> None:
        if step == at:
            raise Crash(step)

    return reached


def test_a_batch_that_died_between_state_and_table_is_finished_by_its_replay(tmp_path: Path) -> None:
    first = table_of([(1, 1, False, "a", 1.0)])
    with pytest.raises(Crash):
        merge(first, changes(1), str(tmp_path), Transaction("flow", 0), reached=dying("state is merged"))
    assert DeltaTable.is_deltatable(state_path(str(tmp_path))) and not DeltaTable.is_deltatable(str(tmp_path))
    assert merge(first, changes(1), str(tmp_path), Transaction("flow", 0))
    assert not merge(first, changes(1), str(tmp_path), Transaction("flow", 0))
    assert rows_of(tmp_path) == [("1", "a", 1.0)]


def test_merged_rows_are_found_by_duckdb_and_pandas(tmp_path: Path) -> None:
    events = [(key, 1, False, f"n{key}", 1.0) for key in range(5)]
    merge(table_of(events), changes(2), str(tmp_path), Transaction("flow", 0))
    merge(table_of([(1, 2, False, "other", 1.0)]), changes(2), str(tmp_path), Transaction("flow", 1))
    dataset = delta_reader.dataset_of(tmp_path)
    assert duckdb.from_arrow(dataset).filter("name = 'n1'").fetchall() == [("1", "n1", 1.0, 1, 2)]
    assert (
        len(
            DeltaTable(str(tmp_path)).to_pandas(
                filters=[("name", "=", "other")], filesystem=delta_reader.files_of(tmp_path)
            )
        )
        == 1
    )


@pytest.mark.parametrize("scd_type", [1, 2])
def test_merges_and_compactions_at_once_lose_and_double_nothing(tmp_path: Path, scd_type: int) -> None:
    chance = random.Random(scd_type)
    events = [event for _ in range(4) for event in random_events(chance)]
    by_moment = {event[:2]: event for event in events}
    sent = list(by_moment.values())
    chance.shuffle(sent)
    done = threading.Event()
    failed: list[BaseException] = []

    def compact() -> None:
        try:
            while not done.is_set():
                for path in (str(tmp_path), state_path(str(tmp_path))):
                    if DeltaTable.is_deltatable(path):
                        maintain(path, 1 << 20, 168)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    try:
        for number in range(12):
            merge(table_of(sent[number::12]), changes(scd_type), str(tmp_path), Transaction("flow", number))
    finally:
        done.set()
        thread.join(60)
    assert not failed, failed
    found = rows_of(tmp_path)
    assert len(found) == len(set(found)) and set(found) == model(sent, scd_type)


def test_a_merge_whose_files_were_compacted_meanwhile_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        merge(
            table_of([(number, 1, False, "a", 1.0)]), changes(1), str(tmp_path), Transaction("flow", number)
        )
    original = delta.DeltaWriter.write
    calls: list[str] = []

    def write(self: delta.DeltaWriter, *arguments: Any, **named: Any) -> None:
        calls.append(self.path)
        if calls.count(str(tmp_path)) == 1 and self.path == str(tmp_path):
            maintain(self.path, 1 << 20, 168)
        original(self, *arguments, **named)

    monkeypatch.setattr(delta.DeltaWriter, "write", write)
    merge(table_of([(1, 2, False, "b", 1.0)]), changes(1), str(tmp_path), Transaction("flow", 3))
    assert sorted(rows_of(tmp_path)) == [("0", "a", 1.0), ("1", "b", 1.0), ("2", "a", 1.0)]
    assert calls.count(str(tmp_path)) == 2


def test_a_late_upsert_does_not_bring_a_deleted_row_back(tmp_path: Path) -> None:
    merge(table_of([(1, 5, True, None, None)]), changes(1), str(tmp_path), Transaction("flow", 0))
    merge(table_of([(1, 4, False, "a", 1.0)]), changes(1), str(tmp_path), Transaction("flow", 1))
    assert rows_of(tmp_path) == []
    merge(table_of([(1, 6, False, "b", 1.0)]), changes(1), str(tmp_path), Transaction("flow", 2))
    assert rows_of(tmp_path) == [("1", "b", 1.0)]


def test_several_keys_name_a_row_and_a_row_moves_with_its_partition(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.date32()),
            ("kind", pa.string()),
            ("__sequence", pa.int64()),
            ("__deleted", pa.bool_()),
        ]
    )

    def batch(*rows: tuple[str, int, str, int]) -> pa.Table:
        columns = zip(
            *((a, datetime.date(2026, 11, b), kind, n, False) for a, b, kind, n in rows), strict=True
        )
        return pa.table(
            [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )

    rule = Changes(("a", "b"), "unused")
    merge(
        batch(("x", 1, "p q/100%", 1), ("x", 2, "p q/100%", 1), ("y", 1, "q", 1)),
        rule,
        str(tmp_path),
        Transaction("f", 0),
        ("kind",),
    )
    merge(
        batch(("x", 1, "q", 2), ("y", 2, "p q/100%", 1)), rule, str(tmp_path), Transaction("f", 1), ("kind",)
    )
    found = {(row["a"], row["b"].day, row["kind"]) for row in delta_reader.rows_of(tmp_path)}
    assert found == {("x", 1, "q"), ("x", 2, "p q/100%"), ("y", 1, "q"), ("y", 2, "p q/100%")}
    assert DeltaTable(str(tmp_path)).metadata().partition_columns == ["kind"]


@pytest.mark.parametrize("scd_type", [1, 2])
def test_columns_may_be_added_and_sequences_widen(tmp_path: Path, scd_type: int) -> None:
    narrow = pa.schema(
        [("id", pa.int32()), ("v", pa.string()), ("__sequence", pa.int32()), ("__deleted", pa.bool_())]
    )
    wide = pa.schema(
        [
            ("id", pa.int64()),
            ("v", pa.string()),
            ("more", pa.list_(pa.int64())),
            ("__sequence", pa.int64()),
            ("__deleted", pa.bool_()),
        ]
    )
    one = pa.Table.from_pylist([{"id": 1, "v": "a", "__sequence": 1, "__deleted": False}], schema=narrow)
    two = pa.Table.from_pylist(
        [{"id": 1, "v": "b", "more": [7], "__sequence": 1 << 40, "__deleted": False}], schema=wide
    )
    rule = Changes(("id",), "unused", stored_as_scd_type=scd_type)
    for number, batch in enumerate([one, two, one.set_column(2, "__sequence", pa.array([0], pa.int32()))]):
        merge(batch, rule, str(tmp_path), Transaction("flow", number))
    found = sorted(delta_reader.rows_of(tmp_path), key=lambda row: row.get("__START_AT", 0))
    if scd_type == 1:
        assert found == [{"id": 1, "v": "b", "more": [7]}]
    else:
        assert [(row["v"], row["more"], row["__START_AT"], row["__END_AT"]) for row in found] == [
            ("a", None, 0, 1 << 40),
            ("b", [7], 1 << 40, None),
        ]


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (Changes(("nobody",), "n"), "key nobody is not among the table's columns"),
        (Changes(("id",), "n", column_list=("v",)), "key id is not among the table's columns: v"),
        (Changes(("id",), "n", except_column_list=("w",)), "there is no column w among id, n, op, v"),
        (Changes(("id",), "nullif(n, 2)"), "sequence_by is null in 1 events"),
        (Changes(("id",), "array(n)"), "sequence_by is list<element: int64>, which has no order here"),
        (Changes(("id",), "n", stored_as_scd_type=3), "stored_as_scd_type=3: choose 1 or 2"),
    ],
)
def test_mistakes_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, rule: Changes, complaint: str
) -> None:
    batch = spark.createDataFrame(
        [(1, 1, "u", "a"), (2, 2, "u", "b")], "id long, n long, op string, v string"
    )
    with pytest.raises(BadChange) as refused:
        apply_changes(batch, rule, str(tmp_path / "t"), Transaction("flow", 0))
    assert complaint in str(refused.value)


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_stream_of_changes_becomes_a_table(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    source, table = tmp_path / "in", str(tmp_path / "table")
    source.mkdir()
    lines = ["1,1,insert,a", "2,1,insert,b", "1,3,delete,", "1,2,update,c", "2,2,update,d", "2,2,update,d"]
    for number in range(3):
        (source / f"{number}.csv").write_text("\n".join(lines[number * 2 : number * 2 + 2]))
    rule = Changes(("id",), "n", "op = 'delete'", except_column_list=("op", "n"), stored_as_scd_type=scd_type)
    frame = spark.readStream.schema("id long, n long, op string, v string").option("maxFilesPerTrigger", 1)
    query = (
        frame.csv(str(source))
        .writeStream.foreachBatch(
            lambda batch, number: apply_changes(batch, rule, table, Transaction("flow", number)) and None
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    found = sorted(spark.read.format("moldau_lake").load(table).collect())
    if scd_type == 1:
        assert [tuple(row) for row in found] == [(2, "d")]
    else:
        assert {tuple(row) for row in found} == {
            (1, "a", 1, 2),
            (1, "c", 2, 3),
            (2, "b", 1, 2),
            (2, "d", 2, None),
        }
