"""What declarations alone say: the order of flows, circles, and outputs that do not fit their flows."""

from __future__ import annotations

import pytest

from moldau.spark.pipeline.declared import ChangeData, Declared, Flow, Kind, Mistake, Output, Place
from moldau.spark.pipeline.plan import Cycle, order, static_mistakes
from moldau.spark.pipeline.replay import redirected


def output(name: str, kind: Kind = Kind.TABLE, format: str | None = None, **options: str) -> Output:
    return Output(name, kind, Place("t/a.py", 1), format=format, options=options)


def flow(name: str, target: str, line: int = 5, change_data: ChangeData | None = None) -> Flow:
    return Flow(name, target, Place("t/a.py", line), lambda: None, change_data=change_data)  # type: ignore[arg-type, return-value]


def declared(*parts: Output | Flow) -> Declared:
    whole = Declared()
    for part in parts:
        if isinstance(part, Output):
            whole.add_output(part)
        else:
            whole.add_flow(part)
    return whole


def mistakes(*parts: Output | Flow) -> list[str]:
    return [mistake.message for mistake in static_mistakes(declared(*parts))]


def test_a_flow_comes_after_those_that_write_what_it_reads() -> None:
    targets = {"late": "z", "early": "a", "second": "b", "other": "b"}
    reads = {"late": ["b"], "second": ["a"], "early": [], "other": []}
    assert order(targets, reads) == ["early", "second", "other", "late"]


def test_flows_that_do_not_depend_keep_the_order_of_their_declaration() -> None:
    assert order({"c": "1", "a": "2", "b": "3"}, {}) == ["c", "a", "b"]


def test_a_circle_is_named_flow_by_flow() -> None:
    with pytest.raises(Cycle) as raised:
        order({"a": "ta", "b": "tb", "c": "tc"}, {"a": ["tb"], "b": ["tc"], "c": ["ta"]})
    assert raised.value.flows == ["a", "b", "c", "a"]


def test_a_project_that_fits_has_no_mistake() -> None:
    assert mistakes(output("t"), flow("f", "t"), flow("g", "t", 9)) == []


def test_an_unknown_target_gets_the_near_one() -> None:
    (mistake,) = static_mistakes(declared(output("orders"), flow("a", "orders"), flow("f", "ordrs")))
    assert mistake.message == "the flow 'f' writes to 'ordrs', which is not declared."
    assert mistake.hint == "Did you mean orders?"


def test_an_output_without_a_flow_is_a_mistake() -> None:
    assert mistakes(output("t")) == ["no flow writes to the streaming table 't'."]


def test_a_second_flow_into_a_parquet_sink_is_refused_and_into_the_lake_is_not() -> None:
    parquet = output("s", Kind.SINK, "parquet", path="/x")
    assert "would lose rows" in mistakes(parquet, flow("f", "s"), flow("g", "s"))[0]
    assert mistakes(output("s", Kind.SINK, "moldau_lake", path="/x"), flow("f", "s"), flow("g", "s")) == []


def test_a_file_sink_without_a_path_is_a_mistake() -> None:
    assert mistakes(output("s", Kind.SINK, "json"), flow("f", "s")) == [
        "the json sink 's' needs the option 'path'."
    ]


def test_change_data_has_a_table_of_its_own() -> None:
    change = ChangeData("s", ("id",), "at")
    twice = mistakes(output("t"), flow("f", "t", change_data=change), flow("g", "t"))
    assert twice == ["a table of change data has one flow, and 't' has 2."]
    wrong = mistakes(output("v", Kind.SINK, "console"), flow("f", "v", change_data=change))
    assert wrong == ["change data goes into a streaming table, and 'v' is a sink."]


@pytest.mark.parametrize(
    ("name", "words"),
    [("a.b", "not a plain name"), ("_a", "may not be called"), ("t", "already, declared at")],
)
def test_names_that_cannot_be_folders_or_are_taken_are_refused(name: str, words: str) -> None:
    with pytest.raises(Mistake, match=words):
        declared(output("t"), output(name))


def test_a_replay_goes_into_a_new_output_of_the_same_kind() -> None:
    whole = declared(
        output("t"), flow("f", "t"), output("s", Kind.SINK, "moldau", topic="orders"), flow("g", "s"),
        output("p", Kind.SINK, "parquet", path="/lake/p/"), flow("h", "p"),
    )  # fmt: skip
    again = redirected(whole, "t", "t2")
    assert {name: flow.target for name, flow in again.flows.items()} == {
        "f": "t",
        "g": "s",
        "h": "p",
        "f_t2": "t2",
    }
    assert redirected(whole, "s", "orders-2").outputs["orders-2"].options == {"topic": "orders-2"}
    assert redirected(whole, "p", "p2").outputs["p2"].options == {"path": "/lake/p2"}


def test_a_replay_of_nothing_or_into_something_that_is_there_is_refused() -> None:
    whole = declared(output("t"), flow("f", "t"), output("v", Kind.VIEW), flow("v", "v"))
    for name, into, words in (("x", "y", "no output"), ("t", "v", "already"), ("v", "y", "temporary view")):
        with pytest.raises(Mistake, match=words):
            redirected(whole, name, into)
