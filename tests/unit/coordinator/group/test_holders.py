"""Who holds which partition, in a group and in drafts of it."""

from __future__ import annotations

from uuid import UUID

from moldau.coordinator.group.consumer.holders import Holders

T, U = UUID(int=1), UUID(int=2)


def test_a_partition_is_its_last_holders_until_that_one_gives_it_up() -> None:
    holders = Holders()
    holders.hold("a", {T: {0: 1, 1: 1}})
    holders.hold("b", {T: {1: 2}})
    holders.release("a", {T: {0: 1, 1: 1}})
    assert holders.of(T) == {1: "b"} and holders.of(U) == {}
    holders.release("b", {T: {1: 2}})
    assert holders.of(T) == {} and not holders._own


def test_a_draft_sees_its_own_changes_over_the_groups_which_sees_none_of_them() -> None:
    holders = Holders()
    holders.hold("a", {T: {0: 1}, U: {5: 1}})
    draft = holders.draft()
    draft.release("a", {T: {0: 1}})
    draft.hold("b", {T: {0: 2, 3: 2}})
    assert draft.of(T) == {0: "b", 3: "b"} and draft.of(U) == {5: "a"}
    assert holders.of(T) == {0: "a"}


def test_what_is_given_up_in_a_draft_is_free_in_it() -> None:
    holders = Holders()
    holders.hold("a", {T: {0: 1}})
    draft = holders.draft()
    draft.release("a", {T: {0: 1}})
    assert draft.of(T) == {} and holders.of(T) == {0: "a"}
