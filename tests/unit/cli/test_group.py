"""`moldau group describe` as a person sees it."""

from __future__ import annotations

import pytest

from moldau.cli.group import print_group
from moldau.cli.group_view import GroupView, MemberView


def test_members_are_shown_though_nobody_has_a_partition(capsys: pytest.CaptureFixture[str]) -> None:
    idle = MemberView("member-1", None, "reporter", "10.0.0.7", ())
    print_group(GroupView("reports", "Stable", "range", 1, [idle]))

    assert "reporter (10.0.0.7) has no partition" in capsys.readouterr().out
