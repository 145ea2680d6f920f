"""`moldau group describe` as a person sees it."""

from __future__ import annotations

import pytest

from moldau.cli.group import print_group
from moldau.cli.group_view import GroupView, MemberView, PartitionView


def test_members_are_shown_though_nobody_has_a_partition(capsys: pytest.CaptureFixture[str]) -> None:
    idle = MemberView("member-1", None, "reporter", "10.0.0.7", ())
    print_group(GroupView("reports", "Stable", "range", 1, [idle]))

    assert "reporter (10.0.0.7) has no partition" in capsys.readouterr().out


def test_the_lag_of_a_partition_without_an_offset_is_unknown_and_not_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known, unknown = PartitionView("orders", 0, 5, 17), PartitionView("orders", 1, None, 400)
    for partitions, said in (
        ([known], "lag 12\n"),
        ([known, unknown], "lag 12, unknown for 1 partition\n"),
        ([unknown], "lag unknown\n"),
    ):
        print_group(GroupView("reports", "Empty", "", 1, [], partitions))
        assert said in capsys.readouterr().out


def test_static_members_are_shown_with_their_instance(capsys: pytest.CaptureFixture[str]) -> None:
    static = MemberView("m-1", "till-7", "reporter", "10.0.0.7", (("orders", 0),))
    other = MemberView("m-2", None, "reporter", "10.0.0.8", (("orders", 1),))
    rows = [PartitionView("orders", 0, 5, 17, static), PartitionView("orders", 1, 5, 17, other)]
    print_group(GroupView("reports", "Stable", "range", 1, [static, other], rows))

    _, header, first, second = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in (header, first, second)] == ["INSTANCE", "till-7", "-"]


def test_an_instance_that_the_members_id_begins_with_is_shown_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    classic = MemberView("till-7-5e8fde35", "till-7", "reporter", "10.0.0.7", (("orders", 0),))
    row = PartitionView("orders", 0, 5, 17, classic)
    print_group(GroupView("reports", "Stable", "range", 1, [classic], [row]))

    assert "INSTANCE" not in capsys.readouterr().out
