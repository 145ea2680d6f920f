"""What the authorizer decides: as a slow and obvious one does, and as Kafka's AuthorizerTest says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base import limits
from moldau.runtime.line import whole
from moldau.security import authorizer as authorizer_module
from moldau.security.acls import (
    EVERYONE,
    OPERATIONS,
    Acl,
    AclFilter,
    Entry,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourcePattern,
    canonical_host,
    pattern_of,
    resource_key,
    text_of,
)
from moldau.security.authorizer import Authorizer, Default

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"


def acl(
    words: str,
    *,
    principal: str = ALICE,
    host: str = "*",
    pattern: Pattern = Pattern.LITERAL,
) -> Acl:
    """Of `ALLOW READ TOPIC orders`."""
    permission, operation, resource, name = words.split(" ")
    return Acl(
        Resource[resource],
        pattern,
        name,
        Entry(principal, host, Operation[operation], Permission[permission]),
    )


def by_key(acls: Sequence[Acl]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for one in acls:
        found.setdefault(resource_key(ResourcePattern(*one[:3])), {})[text_of(one.entry)] = ""
    return found


def with_acls(*acls: Acl, super_users: Sequence[str] = (), allows_without_acls: bool = False) -> Authorizer:
    made = Authorizer(super_users, allows_without_acls=allows_without_acls)
    whole(made.take_over({}))
    for key, texts in by_key(acls).items():
        whole(made.changing(key, texts))
    return made


def may(made: Authorizer, words: str, principal: str = ALICE, host: str = HOST) -> bool:
    operation, resource, name = words.split(" ")
    return made.allows(principal, host, Operation[operation], Resource[resource], name)


# The slow one


def obvious(
    acls: Sequence[Acl],
    principal: str,
    host: str,
    operation: Operation,
    resource: Resource,
    name: str,
    *,
    without_acls: bool,
) -> bool:
    of_resource = [
        one
        for one in acls
        if one.resource is resource
        and (one.name in (name, "*") if one.pattern is Pattern.LITERAL else name.startswith(one.name))
    ]
    of_asker = [
        one.entry
        for one in of_resource
        if one.entry.principal in (principal, "User:*") and one.entry.host in (host, "*")
    ]
    for entry in of_asker:
        if entry.permission is Permission.DENY and entry.operation in (operation, Operation.ALL):
            return False
    implied = [operation, Operation.ALL]
    if operation is Operation.DESCRIBE:
        implied += [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]
    if operation is Operation.DESCRIBE_CONFIGS:
        implied.append(Operation.ALTER_CONFIGS)
    if any(e.permission is Permission.ALLOW and e.operation in implied for e in of_asker):
        return True
    return not of_resource and without_acls


names = st.sampled_from(["a", "ab", "abc", "abd", "b", "ba", "*", "hardcode", "ä"])
operations = st.sampled_from([operation for operation in Operation if operation > Operation.ANY])
resources = st.sampled_from([Resource.TOPIC, Resource.GROUP])
principals = st.sampled_from([ALICE, BOB, "User:*", "Group:alice"])
hosts = st.sampled_from(["10.0.0.1", "10.0.0.2", "*"])
entries = st.builds(
    Entry, principals, hosts, operations, st.sampled_from([Permission.ALLOW, Permission.DENY])
)
acls = st.builds(Acl, resources, st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]), names, entries)


@given(
    st.lists(acls, max_size=12),
    st.lists(
        st.tuples(
            st.sampled_from([ALICE, BOB]),
            st.sampled_from(["10.0.0.1", "10.0.0.2"]),
            operations,
            resources,
            names,
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_it_decides_as_one_that_looks_at_every_acl(
    given_acls: list[Acl], asked: list[tuple[str, str, Operation, Resource, str]], without_acls: bool
) -> None:
    made = with_acls(*given_acls, allows_without_acls=without_acls)
    for question in asked:
        expected = obvious(given_acls, *question, without_acls=without_acls)
        assert made.allows(*question) is expected
        assert made.allows(*question) is expected, "remembered"
        decision = made.decide(*question)
        assert decision.is_allowed is expected
        if isinstance(decision.rule, Acl):
            assert (decision.rule.entry.permission is Permission.ALLOW) is expected


@given(st.lists(acls, max_size=12), st.lists(st.integers(0, 11), max_size=12), st.lists(acls, max_size=4))
def test_after_changes_it_decides_as_one_made_anew(
    before: list[Acl], removed: list[int], added: list[Acl]
) -> None:
    changed = with_acls(*before)
    after = [one for number, one in enumerate(before) if number not in removed] + added
    for key in by_key(before):
        whole(changed.changing(key, by_key(after).get(key, {})))
    for key, texts in by_key(added).items():
        whole(changed.changing(key, by_key(after)[key] or texts))
    anew = Authorizer()
    whole(anew.take_over(by_key(after)))
    assert changed.acl_count == anew.acl_count == len(set(after))
    everything = AclFilter()
    assert set(whole(changed.described(everything))) == set(whole(anew.described(everything))) == set(after)
    for name in ("a", "ab", "abcd", "b"):
        for operation in (Operation.READ, Operation.DESCRIBE):
            question = (ALICE, HOST, operation, Resource.TOPIC, name)
            assert changed.allows(*question) is anew.allows(*question)
    for principal in (ALICE, BOB):
        some = (principal, HOST, Operation.WRITE, Resource.TOPIC)
        assert changed.allows_some(*some) is anew.allows_some(*some)


# Kafka's facts (AuthorizerTest, StandardAuthorizerTest)


def test_nobody_may_do_anything_where_there_are_no_acls() -> None:
    assert not may(with_acls(), "READ TOPIC t")
    assert with_acls().decide(ALICE, HOST, Operation.READ, Resource.TOPIC, "t").rule is Default.NO_ACL_DENIES


def test_everyone_may_do_everything_to_a_resource_without_acls_where_that_is_set() -> None:
    made = with_acls(acl("ALLOW READ TOPIC other", principal=BOB), allows_without_acls=True)
    assert may(made, "READ TOPIC t")
    assert not may(made, "READ TOPIC other"), "it has an ACL, for another"


def test_a_super_user_may_do_everything_even_what_is_denied() -> None:
    made = with_acls(acl("DENY ALL TOPIC *", principal=EVERYONE), super_users=["User:admin"])
    assert may(made, "WRITE TOPIC t", principal="User:admin")
    assert not may(made, "WRITE TOPIC t", principal="User:Admin")
    assert made.allows_some("User:admin", HOST, Operation.WRITE, Resource.TOPIC)


def test_deny_comes_before_allow_wherever_it_is_said() -> None:
    denied = [
        acl("DENY READ TOPIC orders"),
        acl("DENY READ TOPIC *"),
        acl("DENY READ TOPIC ord", pattern=Pattern.PREFIXED),
        acl("DENY ALL TOPIC orders"),
        acl("DENY READ TOPIC orders", principal=EVERYONE),
        acl("DENY READ TOPIC orders", host=HOST),
    ]
    for deny in denied:
        assert not may(
            with_acls(acl("ALLOW ALL TOPIC *", principal=EVERYONE), acl("ALLOW READ TOPIC orders"), deny),
            "READ TOPIC orders",
        ), deny


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "ALL"])
def test_who_may_do_more_may_describe(operation: str) -> None:
    assert may(with_acls(acl(f"ALLOW {operation} TOPIC t")), "DESCRIBE TOPIC t")


@pytest.mark.parametrize("operation", ["CREATE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", "CLUSTER_ACTION"])
def test_other_rights_do_not_imply_to_describe(operation: str) -> None:
    assert not may(with_acls(acl(f"ALLOW {operation} TOPIC t")), "DESCRIBE TOPIC t")


def test_who_may_alter_configs_may_describe_them() -> None:
    assert may(with_acls(acl("ALLOW ALTER_CONFIGS TOPIC t")), "DESCRIBE_CONFIGS TOPIC t")
    assert not may(with_acls(acl("ALLOW DESCRIBE_CONFIGS TOPIC t")), "ALTER_CONFIGS TOPIC t")


def test_to_deny_reading_does_not_deny_describing() -> None:
    made = with_acls(acl("ALLOW DESCRIBE TOPIC t"), acl("DENY READ TOPIC t"))
    assert may(made, "DESCRIBE TOPIC t")
    assert not may(made, "READ TOPIC t")


def test_an_acl_is_for_its_principal_host_kind_and_name_alone() -> None:
    made = with_acls(acl("ALLOW READ TOPIC t", host=HOST))
    assert may(made, "READ TOPIC t")
    assert not may(made, "READ TOPIC t", host="10.0.0.2")
    assert not may(made, "READ TOPIC t", principal=BOB)
    assert not may(made, "READ TOPIC t", principal="Group:alice")
    assert not may(made, "READ GROUP t")
    assert not may(made, "READ TOPIC tt")
    assert not may(made, "READ TOPIC T")


def test_a_prefix_is_for_all_that_begins_with_it_and_not_a_wildcard() -> None:
    made = with_acls(acl("ALLOW READ TOPIC ord", pattern=Pattern.PREFIXED))
    assert may(made, "READ TOPIC ord") and may(made, "READ TOPIC orders")
    assert not may(made, "READ TOPIC or") and not may(made, "READ TOPIC Order")
    star = with_acls(acl("ALLOW READ TOPIC *", pattern=Pattern.PREFIXED))
    assert may(star, "READ TOPIC *a") and not may(star, "READ TOPIC a")


@pytest.mark.parametrize(
    "name", ["../orders", "orders/../x", "orders\0", " orders", "orders ", "ORDERS", "ordеrs"]
)
def test_a_name_that_only_looks_like_another_is_another(name: str) -> None:
    made = with_acls(acl("ALLOW READ GROUP orders"))
    assert not made.allows(ALICE, HOST, Operation.READ, Resource.GROUP, name)


def test_an_address_is_the_same_in_every_spelling() -> None:
    made = with_acls(acl("ALLOW READ TOPIC t", host="0:0:0:0:0:0:0:1"), acl("ALLOW READ TOPIC u", host="::1"))
    assert may(made, "READ TOPIC t", host="::1") and may(made, "READ TOPIC u", host="::1")
    assert may(made, "READ TOPIC u", host="0:0:0:0:0:0:0:1")
    assert canonical_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_host("not:an:address") == "not:an:address"


def test_to_write_to_some_topic_one_must_be_allowed_that_is_not_denied_as_a_whole() -> None:
    def some(*given_acls: Acl) -> bool:
        return with_acls(*given_acls).allows_some(ALICE, HOST, Operation.WRITE, Resource.TOPIC)

    allow, prefix = acl("ALLOW WRITE TOPIC abc"), Pattern.PREFIXED
    assert not some()
    assert (
        some(allow) and some(acl("ALLOW ALL TOPIC abc")) and some(acl("ALLOW WRITE TOPIC a", pattern=prefix))
    )
    assert some(acl("ALLOW WRITE TOPIC *", principal=EVERYONE))
    assert not some(acl("ALLOW WRITE TOPIC abc", principal=BOB)) and not some(acl("ALLOW READ TOPIC abc"))
    assert not some(acl("ALLOW WRITE TOPIC abc", host="10.0.0.2"))
    assert not some(allow, acl("DENY WRITE TOPIC abc"))
    assert not some(allow, acl("DENY WRITE TOPIC *")) and not some(
        allow, acl("DENY ALL TOPIC ab", pattern=prefix)
    )
    assert some(allow, acl("DENY WRITE TOPIC abcd")) and some(
        allow, acl("DENY WRITE TOPIC abcd", pattern=prefix)
    )
    assert not some(acl("ALLOW WRITE TOPIC ab", pattern=prefix), acl("DENY WRITE TOPIC a", pattern=prefix))
    assert some(acl("ALLOW WRITE TOPIC ab", pattern=prefix), acl("DENY WRITE TOPIC ab"))
    everything = with_acls(allows_without_acls=True)
    assert everything.allows_some(ALICE, HOST, Operation.WRITE, Resource.TOPIC)


def test_filters_mean_what_kafkas_mean() -> None:
    literal, star = acl("ALLOW READ TOPIC orders"), acl("ALLOW READ TOPIC *")
    prefix = acl("ALLOW READ TOPIC ord", pattern=Pattern.PREFIXED)
    group = acl("DENY DELETE GROUP orders", principal=BOB, host=HOST)
    everything = [literal, star, prefix, group]

    def found(**fields: object) -> list[Acl]:
        return [one for one in everything if AclFilter(**fields).fits(one)]  # type: ignore[arg-type]

    assert found() == everything
    assert found(resource=Resource.TOPIC) == [literal, star, prefix]
    assert found(name="orders") == [literal, group]
    assert found(name="orders", pattern=Pattern.MATCH) == [literal, star, prefix, group]
    assert found(name="orders", pattern=Pattern.LITERAL) == [literal, group]
    assert found(name="orders", pattern=Pattern.PREFIXED) == []
    assert found(name="ord", pattern=Pattern.PREFIXED) == [prefix]
    assert found(name="*") == [star] and found(name="*", pattern=Pattern.MATCH) == [star]
    assert found(pattern=Pattern.MATCH) == everything
    assert found(principal=BOB) == found(host=HOST) == found(operation=Operation.DELETE) == [group]
    assert found(permission=Permission.DENY) == [group]


# What is remembered


def test_what_is_remembered_has_a_bound_and_never_outlives_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "ACL_DECISIONS_MAX", 10)
    made = with_acls(acl("ALLOW READ TOPIC t"), acl("ALLOW WRITE TOPIC w", pattern=Pattern.PREFIXED))
    for number in range(35):
        assert not may(made, f"READ TOPIC t{number}") and may(made, f"WRITE TOPIC w{number}")
    assert len(made._denied) <= 10 and len(made._allowed) <= 10
    assert may(made, "READ TOPIC t")
    whole(made.changing("TOPIC:LITERAL:t", {}))
    assert not may(made, "READ TOPIC t")
    assert not may(made, f"READ TOPIC {'x' * (limits.ACL_NAME_REMEMBERED_LETTERS_MAX + 1)}")
    assert len(made._denied) == 1, "of so long a name nothing is kept"


def test_names_of_strangers_take_nothing_from_those_who_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "ACL_DECISIONS_MAX", 10)
    made = with_acls(acl("ALLOW READ TOPIC t"), super_users=["User:admin"])
    assert may(made, "READ TOPIC t")
    for number in range(100):
        assert not may(made, f"READ TOPIC t{number}", principal=BOB)
        assert may(made, f"READ TOPIC t{number}", principal="User:admin")
    assert list(made._allowed) == [(ALICE, HOST, Operation.READ, Resource.TOPIC, "t")]


def test_nobody_but_super_users_may_do_anything_before_the_acls_are_known() -> None:
    made = Authorizer(["User:admin"], allows_without_acls=True)
    assert may(made, "READ TOPIC t", principal="User:admin")
    assert not may(made, "READ TOPIC t")
    assert made.decide(ALICE, HOST, Operation.READ, Resource.TOPIC, "t").rule is Default.NOT_KNOWN
    assert not made.allows_some(ALICE, HOST, Operation.WRITE, Resource.TOPIC)
    whole(made.take_over({}))
    assert may(made, "READ TOPIC t")


def test_the_acls_of_before_count_until_all_new_ones_are_known() -> None:
    made = with_acls(acl("ALLOW READ TOPIC t"))
    others = by_key([acl(f"ALLOW READ TOPIC u{number}") for number in range(2_000)])
    taking = made.take_over(others)
    assert [may(made, "READ TOPIC t") for _ in taking] == [True] * 4
    assert not may(made, "READ TOPIC t") and may(made, "READ TOPIC u7")


# Words


def test_every_operation_belongs_to_a_resource_and_keys_are_read_back() -> None:
    assert {one for some in OPERATIONS.values() for one in some} == set(Operation) - {
        Operation.ANY,
        Operation.ALL,
    }
    for name in ("a", "a:b", "", "ä/..", ":"):
        pattern = ResourcePattern(Resource.GROUP, Pattern.PREFIXED, name)
        assert pattern_of(resource_key(pattern)) == pattern
