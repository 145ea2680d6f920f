"""AlterClientQuotas and DescribeClientQuotas decide as Kafka (ClientQuotaControlManagerTest, ClientQuotasImage)."""

from __future__ import annotations

import logging
from math import inf, nan

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.controller import quotas as quotas_module
from moldau.controller.quotas import (
    MATCH_DEFAULT,
    MATCH_EXACT,
    MATCH_SPECIFIED,
    QuotaAlteration,
    QuotaComponent,
    decide_alter_quotas,
    find_quotas,
)
from moldau.controller.slices import whole
from moldau.metadata.image import ClusterImage, image_from, snapshot_of
from moldau.metadata.records import ResourceType
from moldau.store.memory import MemoryStore, Tree

from .test_controller import Node, run

ALICE = {"user": "alice"}


def alter(
    image: ClusterImage, *wanted: tuple[dict[str, str | None], dict[str, float | None]]
) -> list[tuple[ErrorCode, str | None]]:
    alterations = [QuotaAlteration(entity, list(values.items())) for entity, values in wanted]
    outcomes, records = whole(decide_alter_quotas(image, alterations))
    for record in records:
        image.apply(record)
    return [(outcome.error, outcome.message) for outcome in outcomes]


def kept(image: ClusterImage) -> dict[str, dict[str, float]]:
    found = image.configs_of(ResourceType.CLIENT_QUOTA)
    return {key: {name: float(text) for name, text in values.items()} for key, values in found.items()}


def found(image: ClusterImage, *components: tuple[str, int, str | None], strict: bool = False) -> list[str]:
    wanted = [QuotaComponent(*component) for component in components]
    entries = whole(find_quotas(image, wanted, strict=strict))
    return sorted("/".join(f"{type_}:{name}" for type_, name in entry.entity.items()) for entry in entries)


OK = (ErrorCode.none, None)


def test_quotas_are_set_changed_and_taken_away() -> None:
    image = ClusterImage("cluster")
    assert alter(image, (ALICE, {"producer_byte_rate": 1000.0, "request_percentage": 0.5})) == [OK]
    assert alter(image, (ALICE, {"producer_byte_rate": 2000.0, "consumer_byte_rate": None})) == [OK]
    assert kept(image) == {'{"user":"alice"}': {"producer_byte_rate": 2000.0, "request_percentage": 0.5}}
    assert alter(image, (ALICE, {"producer_byte_rate": None, "request_percentage": None})) == [OK]
    assert kept(image) == {}


def test_what_changes_nothing_writes_nothing() -> None:
    image = ClusterImage("cluster")
    alter(image, (ALICE, {"producer_byte_rate": 1000.0}))
    again = [
        QuotaAlteration(ALICE, [("producer_byte_rate", 1000.0)]),
        QuotaAlteration({"ip": None}, [("connection_creation_rate", None)]),
    ]
    outcomes, records = whole(decide_alter_quotas(image, again))
    assert [outcome.error for outcome in outcomes] == [ErrorCode.none] * 2 and not records


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        (
            {"ip": "10.0.0.1", "user": "alice"},
            {"connection_creation_rate": 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            {"ip": "not an ip"},
            {"connection_creation_rate": 1.0},
            "not an ip is not a valid IP or resolvable host.",
        ),
        (ALICE, {"unknown": 1.0}, "Invalid configuration key unknown"),
        (ALICE, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"ip": None}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        (ALICE, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, {"request_percentage": -1.0}, "Quota request_percentage must be greater than 0"),
        (ALICE, {"request_percentage": nan}, "Quota request_percentage must be a number"),
        (ALICE, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            ALICE,
            {"producer_byte_rate": inf},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": None},
            {"connection_creation_rate": 2.0**31},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ({"user": "x" * 1001}, {"producer_byte_rate": 1.0}, "The name of a user has more than 1000 letters."),
    ],
)
def test_what_is_no_quota_is_refused(
    entity: dict[str, str | None], values: dict[str, float | None], message: str
) -> None:
    image = ClusterImage("cluster")
    assert alter(image, (entity, values)) == [(ErrorCode.invalid_request, message)]
    assert not kept(image)


def test_one_bad_value_refuses_its_entity_and_no_other() -> None:
    image = ClusterImage("cluster")
    codes = alter(
        image,
        (ALICE, {"producer_byte_rate": 1.0, "consumer_byte_rate": -1.0}),
        ({"client-id": "app"}, {"producer_byte_rate": 1.0}),
    )
    assert [code for code, _ in codes] == [ErrorCode.invalid_request, ErrorCode.none]
    assert list(kept(image)) == ['{"client-id":"app"}']


def test_an_entity_that_is_named_twice_is_changed_once_and_told() -> None:
    image = ClusterImage("cluster")
    outcomes = alter(image, (ALICE, {"producer_byte_rate": 1.0}), (ALICE, {"producer_byte_rate": 2.0}))
    assert outcomes == [
        (
            ErrorCode.invalid_request,
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})",
        )
    ]
    assert kept(image) == {'{"user":"alice"}': {"producer_byte_rate": 1.0}}
    twice = [QuotaAlteration(ALICE, [("producer_byte_rate", 3.0), ("producer_byte_rate", 4.0)])]
    (outcome,), records = whole(decide_alter_quotas(image, twice))
    assert outcome.error is ErrorCode.invalid_request and not records


def test_what_names_too_much_of_one_entity_is_refused() -> None:
    image = ClusterImage("cluster")
    wanted = [QuotaAlteration(ALICE, [("producer_byte_rate", 1.0)], is_whole=False)]
    (outcome,), records = whole(decide_alter_quotas(image, wanted))
    assert outcome.error is ErrorCode.invalid_request and not records
    assert outcome.message == "More than 100 types or quotas of one entity were given."


def test_so_many_entities_have_quotas_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "QUOTA_ENTITIES_MAX", 2)
    image = ClusterImage("cluster")
    rate = {"producer_byte_rate": 1.0}
    codes = [code for code, _ in alter(image, *(({"user": name}, rate) for name in "abc"))]
    assert codes == [ErrorCode.none, ErrorCode.none, ErrorCode.invalid_request]
    assert alter(image, ({"user": "a"}, {"producer_byte_rate": None}), ({"user": "c"}, rate)) == [OK, OK]
    assert alter(image, ({"user": "b"}, {"producer_byte_rate": 2.0})) == [OK], "those there may change"


@pytest.fixture
def image() -> ClusterImage:
    """Those of ClientQuotasRequestTest.setupDescribeClientQuotasMatchTest, in short."""
    image = ClusterImage("cluster")
    rate = {"request_percentage": 50.0}
    entities: list[dict[str, str | None]] = [
        {"user": "user-1", "client-id": "client-1"},
        {"user": "user-1", "client-id": None},
        {"user": "user-2"},
        {"user": None, "client-id": "client-2"},
        {"user": None},
        {"client-id": "client-2"},
        {"client-id": None},
    ]
    alter(image, *((entity, rate) for entity in entities))
    alter(image, ({"ip": "1.2.3.4"}, {"connection_creation_rate": 10.0}))
    return image


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ([], False, 8),
        ([], True, 0),
        ([("user", MATCH_EXACT, "user-1")], False, 2),
        ([("user", MATCH_EXACT, "user-1")], True, 0),
        ([("user", MATCH_EXACT, "user-2")], True, 1),
        ([("user", MATCH_DEFAULT, None)], False, 2),
        ([("user", MATCH_DEFAULT, None)], True, 1),
        ([("user", MATCH_SPECIFIED, None)], False, 5),
        ([("user", MATCH_SPECIFIED, None)], True, 2),
        ([("client-id", MATCH_SPECIFIED, None)], False, 5),
        ([("user", MATCH_EXACT, "user-1"), ("client-id", MATCH_DEFAULT, None)], True, 1),
        ([("user", MATCH_SPECIFIED, None), ("client-id", MATCH_SPECIFIED, None)], False, 3),
        ([("ip", MATCH_EXACT, "1.2.3.4")], True, 1),
        ([("ip", MATCH_DEFAULT, None)], False, 0),
        ([("user", MATCH_EXACT, "")], False, 0),
    ],
)
def test_a_filter_finds_what_it_means(
    image: ClusterImage, components: list[tuple[str, int, str | None]], strict: bool, count: int
) -> None:
    assert len(found(image, *components, strict=strict)) == count


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", MATCH_EXACT, "x")], ErrorCode.invalid_request, "Invalid empty entity type."),
        ([("group", MATCH_EXACT, "x")], ErrorCode.unsupported_version, "Unsupported entity type group"),
        (
            [("user", MATCH_EXACT, "x"), ("user", MATCH_SPECIFIED, None)],
            ErrorCode.invalid_request,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", MATCH_EXACT, None)],
            ErrorCode.invalid_request,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", MATCH_DEFAULT, "x")],
            ErrorCode.invalid_request,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        ([("user", 7, None)], ErrorCode.invalid_request, "Unknown match type 7"),
        (
            [("ip", MATCH_DEFAULT, None), ("user", MATCH_DEFAULT, None)],
            ErrorCode.invalid_request,
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component.",
        ),
    ],
)
def test_what_is_no_filter_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as refusal:
        found(ClusterImage("cluster"), *components)
    assert (refusal.value.code, refusal.value.message) == (code, message)


def test_quotas_are_in_the_store_and_in_what_brokers_follow(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.controller")
    tree = Tree()
    wanted = [QuotaAlteration({"user": "alice", "client-id": None}, [("producer_byte_rate", 1024.0)])]

    async def scene() -> None:
        node = await Node.start(MemoryStore(tree))
        await node.controller.alter_quotas(wanted, validate_only=True)
        assert not kept(node.controller.image)
        (outcome,) = await node.controller.alter_quotas(wanted)
        assert outcome.error is ErrorCode.none
        expected = {'{"client-id":null,"user":"alice"}': {"producer_byte_rate": 1024.0}}
        assert kept(node.controller.image) == kept(image_from(snapshot_of(node.controller.image))) == expected
        again = await Node.start(MemoryStore(tree))
        assert kept(again.controller.image) == expected

    run(scene())
    line = "quotas of client-id <default>, user alice are changed: producer_byte_rate=1024.0"
    assert [one.message for one in caplog.records if "quotas of" in one.message] == [line]
