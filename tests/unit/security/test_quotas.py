"""Quotas of clients: which one holds, what is used of it and how long to wait, with the numbers of Kafka's own tests
(ClientQuotaManagerTest, ControllerMutationQuotaManagerTest, QuotaUtilsTest, TokenBucketTest, ConnectionQuotasTest)."""

from __future__ import annotations

from math import inf

import pytest

from moldau.security import quota_meters
from moldau.security.connection_rates import ConnectionRates
from moldau.security.quota_meters import Meter, QuotaMeters
from moldau.security.quota_rates import MS_MAX, QuotaWindow, Rate, TokenBucket
from moldau.security.quotas import (
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    QuotaTable,
    entity_key,
    entity_of,
    value_of,
    value_text,
)

DEFAULT = "<default>"
WINDOW = QuotaWindow(11, 1000)


class Stage:
    """The quotas of a cluster, and a clock."""

    def __init__(self, window: QuotaWindow = WINDOW, mutation_window: QuotaWindow = WINDOW) -> None:
        self.now_ms = 1_000_000
        self.window = window
        self.meters = QuotaMeters(window, mutation_window)

    def put(self, user: str | None, client_id: str | None, **values: float) -> None:
        """`user` and `client_id`: a name, DEFAULT, or None where the entity says nothing of it."""
        named = {"user": user, "client-id": client_id}
        entity = {
            type_: None if name == DEFAULT else name for type_, name in named.items() if name is not None
        }
        self.meters.change(entity_key(entity), {key: value_text(value) for key, value in values.items()})

    def meter(self, user: str, client_id: str) -> Meter:
        return self.meters.meter(f"User:{user}", client_id.encode(), client_id, self.now_ms)

    def limit(self, user: str, client_id: str) -> float | None:
        rate = self.meter(user, client_id).produce
        return None if rate is None else rate.limit

    def is_over(self, user: str, client_id: str, value: float) -> bool:
        """Having used so much a second over the whole window, as ClientQuotaManagerTest.checkQuota."""
        rate = self.meter(user, client_id).produce
        assert rate is not None
        rate.record(value * self.window.samples, self.now_ms)
        return rate.throttle_ms(self.now_ms) > 0


def test_who_is_over_a_quota_waits_until_the_rate_is_back_at_it() -> None:
    rate, now_ms = Rate(WINDOW, 500), 0
    for _ in range(10):
        rate.record(400, now_ms)
        assert rate.throttle_ms(now_ms) == 0
        now_ms += 1000
    now_ms += 500
    rate.record(2300, now_ms)
    assert rate.throttle_ms(now_ms) == 2100, "600 bytes a second over 10.5 seconds"
    now_ms += 2100
    for _ in range(10):
        rate.record(400, now_ms)
        now_ms += 1000
    assert rate.throttle_ms(now_ms) == 0, "the spike is out of the window"


def test_the_time_of_the_loop_is_a_percentage_of_each_second() -> None:
    rate, now_ms = Rate(WINDOW, 1), 0  # percent: 10 ms a second
    for _ in range(10):
        rate.record(0.4, now_ms)
        assert rate.throttle_ms(now_ms) == 0
        now_ms += 1000
    now_ms += 500
    rate.record(6.71, now_ms)
    assert rate.throttle_ms(now_ms) == 210


@pytest.mark.parametrize(
    ("quota", "observed", "samples", "throttle_ms"),
    [(50, 100, 3, 2000), (50, 55, 2, 100), (16.5, 16.5, 10, 0), (20.4, 16.5, 10, 0)],
)
def test_the_wait_is_the_excess_over_the_quota_in_windows(
    quota: float, observed: float, samples: int, throttle_ms: int
) -> None:
    window = QuotaWindow(samples, 1000)
    rate = Rate(window, quota)
    rate.record(observed * window.least_ms / 1000, 5)
    assert rate.throttle_ms(5) == throttle_ms


def test_a_window_of_one_sample_measures_what_has_passed_of_it() -> None:
    rate = Rate(QuotaWindow(1, 1000), 10)
    rate.record(5, 0)
    rate.record(5, 500)
    assert rate.rate(500) == 20
    assert rate.throttle_ms(500) == 500


def test_what_is_taken_back_was_never_used() -> None:
    rate = Rate(WINDOW, 100)
    rate.record(5000, 0)
    assert rate.throttle_ms(0) > 0
    rate.record(-5000, 0)
    assert rate.throttle_ms(0) == 0


def test_a_wait_is_never_longer_than_an_answer_can_say() -> None:
    rate = Rate(WINDOW, 5e-324)
    rate.record(1e300, 0)
    assert rate.throttle_ms(0) == MS_MAX
    bucket = TokenBucket(WINDOW, 5e-324)
    bucket.take(1e300, 0)
    assert bucket.throttle_ms(0) == MS_MAX


def test_a_rate_that_was_idle_for_its_window_is_as_new() -> None:
    rate = Rate(WINDOW, 10)
    rate.record(1e6, 0)
    assert not rate.is_idle(10_999) and rate.rate(10_999) > 0
    assert rate.is_idle(11_000) and rate.rate(11_000) == 0


def test_a_bucket_is_refilled_up_to_what_its_window_allows() -> None:
    """TokenBucketTest.testRecord."""
    bucket = TokenBucket(QuotaWindow(10, 1000), 5)
    assert bucket.tokens(0) == 50
    bucket.take(60, 0)
    assert bucket.tokens(0) == -10
    assert bucket.throttle_ms(0) == 2000
    assert bucket.tokens(2000) == 0
    assert bucket.tokens(3000) == 5
    assert not bucket.is_idle(11_000) and bucket.is_idle(12_000)
    assert bucket.tokens(99_000) == 50


def test_a_strict_quota_lets_through_what_begins_within_it() -> None:
    """ControllerMutationQuotaManagerTest.testControllerMutationQuotaViolation."""
    bucket, now_ms = TokenBucket(QuotaWindow(10, 1000), 10), 0
    for _ in range(10):
        assert bucket.throttle_ms(now_ms) == 0
        bucket.take(10, now_ms)
        now_ms += 1000
    assert bucket.throttle_ms(now_ms) == 0
    bucket.take(110, now_ms)
    assert bucket.throttle_ms(now_ms) == 1000
    now_ms += 1000
    assert bucket.throttle_ms(now_ms) == 0


def test_the_most_specific_quota_holds_in_kafkas_order() -> None:
    """ClientQuotaManagerTest.testQuotaConfigPrecedence, to the letter."""
    stage = Stage()
    stage.put(DEFAULT, None, producer_byte_rate=1000)
    stage.put(None, DEFAULT, producer_byte_rate=2000)
    stage.put(DEFAULT, DEFAULT, producer_byte_rate=3000)
    stage.put("userA", None, producer_byte_rate=4000)
    stage.put("userA", "client1", producer_byte_rate=5000)
    stage.put("userB", None, producer_byte_rate=6000)
    stage.put("userB", "client1", producer_byte_rate=7000)
    stage.put("userB", DEFAULT, producer_byte_rate=8000)
    stage.put("userC", None, producer_byte_rate=10000)
    stage.put(None, "client1", producer_byte_rate=9000)

    def check(user: str, client_id: str, limit: float, value: float, is_over: bool) -> None:
        assert stage.limit(user, client_id) == limit
        assert stage.is_over(user, client_id, value) == is_over, (user, client_id)

    check("userA", "client1", 5000, 4500, False)
    check("userA", "client2", 4000, 4500, True)
    check("userA", "client3", 4000, 0, True)  # shared by the user's clients
    check("userA", "client1", 5000, 0, False)
    check("userB", "client1", 7000, 8000, True)
    check("userB", "client2", 8000, 7000, False)
    check("userB", "client3", 8000, 7000, False)
    check("userD", "client1", 3000, 3500, True)
    check("userD", "client2", 3000, 2500, False)
    check("userE", "client1", 3000, 2500, False)

    stage.put(DEFAULT, DEFAULT)
    check("userD", "client1", 1000, 0, False)
    check("userE", "client4", 1000, 1500, True)
    check("userF", "client4", 1000, 800, False)
    check("userF", "client5", 1000, 800, True)

    stage.put(DEFAULT, None)
    check("userF", "client4", 2000, 0, False)
    check("userF", "client5", 2000, 0, False)
    check("userF", "client5", 2000, 2500, True)
    check("userG", "client5", 2000, 0, True)

    stage.put("userA", None, producer_byte_rate=8000)
    stage.put("userA", "client1", producer_byte_rate=10000)
    check("userA", "client2", 8000, 0, False)
    check("userA", "client2", 8000, 4500, True)
    check("userA", "client1", 10000, 0, False)
    check("userA", "client1", 10000, 6000, True)
    stage.put("userA", "client1")
    check("userA", "client6", 8000, 0, True)
    stage.put("userA", "client6", producer_byte_rate=11000)
    check("userA", "client6", 11000, 8500, False)
    stage.put("userA", DEFAULT, producer_byte_rate=12000)
    stage.put("userA", "client6")
    check("userA", "client6", 12000, 4000, True)


def test_each_kind_of_quota_has_an_order_of_its_own() -> None:
    stage = Stage()
    stage.put("alice", None, consumer_byte_rate=10)
    stage.put(None, DEFAULT, producer_byte_rate=20, request_percentage=5)
    meter = stage.meter("alice", "app")
    assert (meter.fetch and meter.fetch.limit) == 10
    assert (meter.produce and meter.produce.limit) == 20
    assert (meter.request and meter.request.limit) == 5
    assert stage.meters.bucket("User:alice", "app", 0) is None
    assert stage.meter("bob", "app").fetch is None


def test_a_user_named_like_a_default_is_none() -> None:
    table = QuotaTable()
    table.put("named", None, 1.0)
    assert table.find("named", "x") is not None and table.find("other", "x") is None
    assert entity_of(entity_key({"user": None})) == {"user": None} != {"user": DEFAULT}


def test_an_entity_has_one_name_in_whatever_order_it_is_given() -> None:
    assert entity_key({"user": "ü", "client-id": None}) == entity_key({"client-id": None, "user": "ü"})
    assert value_of(value_text(0.1)) == 0.1 and value_of(value_text(1024.0)) == 1024


def test_a_million_client_ids_fill_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_meters, "QUOTA_COUNTERS_MAX", 10)
    stage = Stage()
    stage.put(None, DEFAULT, producer_byte_rate=100)
    stage.put(None, "known", producer_byte_rate=100)
    rates = []
    for number in range(50):
        rate = stage.meter("stranger", f"id {number}").produce
        assert rate is not None
        rate.record(1, stage.now_ms)
        rates.append(rate)
    assert len(set(map(id, rates[:10]))) == 10 and len(set(map(id, rates[10:]))) == 1, "the rest share one"
    known = stage.meter("stranger", "known").produce
    assert known is not None and known not in rates, "who has a quota by name is counted alone"
    assert len(stage.meters.produce) == 12


def test_the_client_ids_of_one_user_take_nothing_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each client id has a quota, whoever its user is."""
    monkeypatch.setattr(quota_meters, "QUOTA_COUNTERS_MAX", 10)
    stage = Stage()
    stage.put(None, DEFAULT, producer_byte_rate=100)
    for number in range(50):
        rate = stage.meter("stranger", f"id {number}").produce
        assert rate is not None
        rate.record(1e9, stage.now_ms)
    for client_id in ("app", "x" * 30_000):
        honest = stage.meter("honest", client_id).produce
        assert honest is not None and honest.throttle_ms(stage.now_ms) == 0
        assert honest is stage.meter("honest", "another").produce
    for number in range(50):
        assert stage.meter(f"user {number}", "new").produce is not None
    assert len(stage.meters.produce) <= 2 * 10 + 1
    assert stage.meter("honest", "app").produce is honest, "who has a count keeps it"


def test_so_many_users_fill_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_meters, "QUOTA_COUNTERS_MAX", 10)
    stage = Stage()
    stage.put(DEFAULT, DEFAULT, producer_byte_rate=100)
    for number in range(100):
        assert stage.meter(f"user {number}", f"id {number}").produce is not None
    assert len(stage.meters.produce) <= 2 * 10 + 1


def test_long_client_ids_share_one_count() -> None:
    stage = Stage()
    stage.put(None, DEFAULT, producer_byte_rate=100)
    one, other = stage.meter("u", "x" * 30_000), stage.meter("u", "y" * 30_000)
    assert one.produce is other.produce


def test_counters_of_idle_clients_go_and_their_meters_with_them() -> None:
    stage = Stage()
    stage.put(None, DEFAULT, producer_byte_rate=100, controller_mutation_rate=1)
    meter = stage.meter("u", "idle")
    assert meter.produce is not None
    meter.produce.record(1, stage.now_ms)
    bucket = stage.meters.bucket("User:u", "idle", stage.now_ms)
    assert bucket is not None
    bucket.take(5, stage.now_ms)
    stage.now_ms += 10_000
    assert stage.meter("u", "idle").version == meter.version
    stage.now_ms += 10_000
    for _ in range(4):  # kinds of quotas, of which one is looked through for each client
        latest = stage.meter("u", "other")
    assert latest.version != meter.version
    assert len(stage.meters.produce) == 1 and len(stage.meters.mutation) == 0


def test_a_meter_counts_the_time_that_the_loop_works_for_its_client() -> None:
    stage = Stage()
    stage.put("u", None, request_percentage=1)
    meter = stage.meter("u", "c")
    rate = meter.request
    assert rate is not None
    assert meter.begin(10.0) and not meter.begin(10.01), "a step within a step counts once"
    assert meter.request_ms(10.0001) == 0
    meter.end(10.1)
    meter.end(99.0)
    assert rate.rate(10_100) == pytest.approx(100 * 0.1 / 10.05, rel=0.02)
    assert rate.throttle_ms(10_100) == 0
    meter.add(10.1, 10.3)
    assert rate.throttle_ms(10_300) > 0


def test_what_may_be_fetched_at_once_is_what_need_not_wait() -> None:
    assert Stage().meters.fetch_bytes_max(1000) == 10_000
    assert Stage().meters.fetch_bytes_max(1e300) == 2**31 - 1


def test_nothing_is_counted_where_nobody_has_a_quota() -> None:
    stage = Stage()
    assert stage.meters.is_empty
    for key in (PRODUCE, FETCH, REQUEST, MUTATION):
        stage.put("u", None, **{key: 1.0})
        assert not stage.meters.is_empty
        stage.put("u", None)
        assert stage.meters.is_empty
    stage.meters.change('{"ip":null}', {"connection_creation_rate": "1.0"})
    assert stage.meters.is_empty and stage.meters.connection_rates == {None: 1.0}
    stage.meters.change('{"ip":null}', {})
    assert stage.meters.connection_rates == {}


# New connections


def test_connections_that_come_too_fast_over_the_broker_or_on_a_listener_wait() -> None:
    rates = ConnectionRates(QuotaWindow(2, 1000))
    rates.set_limits(10, {"SLOW": 5, "FAST": inf})
    assert [rates.delay_ms("SLOW", 0) for _ in range(6)] == [0, 0, 0, 0, 0, 200]
    assert [rates.delay_ms("FAST", 0) for _ in range(5)] == [0, 0, 0, 0, 100]
    assert rates.delay_ms("BROKERS", 0, is_protected=True) == 0
    for _ in range(100):
        rates.delay_ms("FAST", 0)
    assert rates.delay_ms("FAST", 0) == 1000, "no longer than a sample"


def test_connections_that_come_too_fast_from_an_address_are_refused_and_do_not_count() -> None:
    rates = ConnectionRates(QuotaWindow(2, 1000))
    rates.set_limits(100, {})
    rates.set_addresses({None: 2, "10.0.0.1": 5, "2001:db8::1": 1})
    assert [rates.refuse_ms("L", "10.0.0.1", 0) for _ in range(6)] == [0] * 5 + [200]
    assert [rates.refuse_ms("L", "10.0.0.2", 0) for _ in range(4)] == [0, 0, 500, 500]
    assert rates.refuse_ms("L", "2001:0DB8:0:0::1", 0) == 0 != rates.refuse_ms("L", "2001:db8::1", 0)
    assert rates.refuse_ms("L", "10.0.0.2", 10_000) == 0
    assert not rates.limits_nothing


def test_addresses_beyond_those_that_are_counted_share_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.security.connection_rates.CONNECTION_RATE_ADDRESSES_MAX", 3)
    rates = ConnectionRates(QuotaWindow(2, 1000))
    rates.set_addresses({None: 1, "10.9.9.9": 1})
    outcomes = [rates.refuse_ms("L", f"10.0.0.{number}", 0) > 0 for number in range(6)]
    assert outcomes == [False, False, False, False, True, True]
    assert rates.refuse_ms("L", "10.9.9.9", 0) == 0, "with a quota by name it is counted alone"


def test_without_a_limit_nothing_is_counted() -> None:
    rates = ConnectionRates(WINDOW)
    rates.set_limits(inf, {"L": inf})
    assert rates.limits_nothing
    rates.set_addresses({None: 1.0})
    assert not rates.limits_nothing
    rates.set_addresses({})
    assert rates.limits_nothing
