"""A real Prometheus on real brokers: the queries of the dashboard have data, the alerts fire when it is their time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from interop.prometheus import MONITORING, Prometheus, documented, expressions
from interop.prometheus_cases import BEGUN_M, CASES, FIRST_SCRAPES, GROUPS, SUDDEN, B, Case, Series
from moldau.testing import Cluster
from needs import missing

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CONFIG = {
    "moldau.http.port": 0,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
}
ROUND_MESSAGES = 20


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None or shutil.which("prometheus") is None:
        missing("There is no Prometheus here; Debian and Ubuntu have it as the package `prometheus`.")
    return found


def run(*command: str, given: bytes = b"") -> str:
    done = subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def pages(cluster: Cluster) -> dict[str, str]:
    """Where the brokers have their metrics."""
    found = {}
    for broker in cluster._running_brokers():
        assert broker.http is not None
        host, port = broker.http.address
        found[str(broker.node_id)] = f"{host}:{port}"
    return found


# ---- the files by themselves


def test_promtool_takes_the_rules_and_the_configuration(promtool: str) -> None:
    rules = run(promtool, "check", "rules", str(MONITORING / "alerts.yml"))
    assert f"SUCCESS: {len(CASES)} rules found" in rules, "each rule has a case"
    run(promtool, "check", "config", "--syntax-only", str(MONITORING / "prometheus.yml"))


def test_promtool_finds_nothing_to_complain_of_in_what_a_broker_tells(promtool: str) -> None:
    with Cluster(topics={"topic": 2}, config={"moldau.http.port": 0}) as cluster, at_work(cluster, "topic"):
        (address,) = pages(cluster).values()
        with urlopen(f"http://{address}/metrics") as answer:
            run(promtool, "check", "metrics", given=answer.read())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_its_condition_has_held_and_not_before(
    promtool: str, tmp_path: Path, case: Case
) -> None:
    wrong = alert_test(case.alert, case.wrong, (case.before_m, 0), (case.fires_m, 1))
    check_rules(promtool, tmp_path, wrong, alert_test(case.alert, case.well, (case.fires_m, 0)))


@pytest.mark.parametrize("values", FIRST_SCRAPES.values(), ids=list(FIRST_SCRAPES))
@pytest.mark.parametrize(("alert", "counter"), SUDDEN)
def test_an_alert_fires_for_what_the_first_scrape_already_shows_and_ceases(
    promtool: str, tmp_path: Path, alert: str, counter: str, values: str
) -> None:
    expected = (BEGUN_M - 1, 0), (BEGUN_M, 1), (BEGUN_M + 9, 1), (BEGUN_M + 20, 0)
    check_rules(promtool, tmp_path, alert_test(alert, {f"{counter}{{{B}}}": values}, *expected))


@pytest.mark.parametrize("group", GROUPS)
def test_lag_of_a_group_that_nobody_has_used_for_a_day_is_no_alarm(
    promtool: str, tmp_path: Path, group: str
) -> None:
    series, expected = GROUPS[group]
    check_rules(promtool, tmp_path, alert_test("MoldauGroupLag", series, *expected), looks_each="5m")


def alert_test(alert: str, series: Series, *expected: tuple[int, int]) -> dict[str, Any]:
    """Of minutes, and whether it fires then."""
    held = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": held,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] * fires,
            }
            for minute, fires in expected
        ],
    }


def check_rules(promtool: str, folder: Path, *tests: dict[str, Any], looks_each: str = "1m") -> None:
    file = folder / "test.yml"
    document = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": looks_each,
        "tests": tests,
    }
    file.write_text(json.dumps(document))
    assert "SUCCESS" in run(promtool, "test", "rules", str(file))


# ---- beside a cluster


@contextmanager
def at_work(cluster: Cluster, topic: str) -> Iterator[None]:
    """A producer, one with transactions, and a group that is behind, until the end."""
    stop = threading.Event()
    worker = threading.Thread(target=work, args=(cluster.bootstrap_servers, topic, stop))
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join(60)


def work(servers: str, topic: str, stop: threading.Event) -> None:
    common: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    producer = Producer({**common, "message.timeout.ms": 2000})
    writer = Producer({**common, "transactional.id": "writer"})
    reader = Consumer(
        {**common, "group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    writer.init_transactions(30)
    reader.subscribe([topic])
    while not stop.is_set():
        for number in range(ROUND_MESSAGES):
            producer.produce(topic, b"%d" % number)
        producer.poll(0)
        writer.begin_transaction()
        writer.produce(topic, b"in a transaction")
        writer.commit_transaction(30)
        for message in reader.consume(ROUND_MESSAGES // 2, timeout=0.2):
            reader.commit(offsets=[Place(topic, message.partition() or 0, (message.offset() or 0) + 1)])
    reader.close()
    producer.flush(5)


def test_every_query_of_the_dashboard_has_data_and_a_cluster_that_is_well_raises_no_alarm(
    promtool: str, tmp_path: Path
) -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic("topic", 3)
        with at_work(cluster, "topic"), Prometheus(tmp_path, list(pages(cluster).values())) as prometheus:
            left = dict([*expressions(), ("as documented", documented())])
            assert len(left) > 40

            def have_data() -> bool:
                for title, expression in list(left.items()):
                    if prometheus.query(expression):
                        del left[title]
                return not left

            try:
                prometheus.wait_for(have_data, "data")
            except AssertionError:
                pytest.fail("there is no data for " + "; ".join(left))
            groups = prometheus.ask("rules")["groups"]
            of_cluster = {
                rule["name"]
                for group in groups
                for rule in group["rules"]
                if group["name"] == "moldau-cluster"
            }
            assert all(rule["health"] == "ok" for group in groups for rule in group["rules"])
            assert len(of_cluster) > 5 and not of_cluster & prometheus.firing()


def test_alerts_fire_when_brokers_die(promtool: str, tmp_path: Path) -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic("topic", 3, {"min.insync.replicas": 2})
        cluster.create_topic("lonely", 3, replicas=1)
        with Prometheus(tmp_path, list(pages(cluster).values())) as prometheus:
            prometheus.wait_for(lambda: len(prometheus.query("up == 1")) == 3, "all brokers")
            for broker in (2, 3):
                cluster.kill(broker)
            expected = {
                "MoldauBrokerDown",
                "MoldauBrokerFenced",
                "MoldauOfflinePartitions",
                "MoldauUnderMinIsr",
                "MoldauUnderReplicated",
            }
            try:
                prometheus.wait_for(lambda: expected <= prometheus.firing(), "alerts")
            except AssertionError:
                pytest.fail(f"only {sorted(expected & prometheus.firing())} fire")
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 3000})
            producer.produce("topic", b"refused")
            producer.flush(10)
            prometheus.wait_for(lambda: "MoldauServerErrors" in prometheus.firing(), "errors")


def test_the_expressions_of_the_rules_are_those_of_the_cases() -> None:
    names = re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    assert names == [case.alert for case in CASES]
