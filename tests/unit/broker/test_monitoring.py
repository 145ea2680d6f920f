"""The dashboard and the alerts ask for nothing that a broker does not tell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from moldau.broker.metrics.table import FAMILIES

MONITORING = Path(__file__).parents[3] / "monitoring"
PROMETHEUS_LABELS = {"job", "instance", "le"}
NAME = re.compile(r"\b(?:moldau|process)_[a-z_]+")
SELECTOR = re.compile(r"\b((?:moldau|process)_[a-z_]+)\{([^}]*)\}")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
RULE = re.MULTILINE | re.DOTALL
"""An expression may have several lines."""
BY = re.compile(r"\bby \(([^)]*)\)")


def expressions() -> list[str]:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    rules = re.findall(r"^ +expr: (.*?)\n +(?:for|labels):", (MONITORING / "alerts.yml").read_text(), RULE)
    assert len(asked) > 40 and len(rules) > 15
    return asked + rules


def variables() -> list[str]:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    queries = [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    assert queries
    return queries


def family_of(name: str) -> str:
    for suffix in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(suffix)
        if base in FAMILIES and FAMILIES[base].kind == "histogram":
            return base
    return name


@pytest.mark.parametrize("expression", [*expressions(), *variables()])
def test_what_is_asked_for_is_in_the_table(expression: str) -> None:
    families = {family_of(name) for name in NAME.findall(expression)}
    assert families <= FAMILIES.keys()
    for name, selector in SELECTOR.findall(expression):
        labels = {*FAMILIES[family_of(name)].labels, *PROMETHEUS_LABELS}
        assert set(LABEL.findall(selector)) <= labels
    known = PROMETHEUS_LABELS.union(*(FAMILIES[name].labels for name in families))
    for labels in BY.findall(expression):
        assert {label.strip() for label in labels.split(",")} <= known


def test_a_counter_is_only_asked_for_its_growth() -> None:
    for expression in expressions():
        for name in NAME.findall(expression):
            if FAMILIES[family_of(name)].kind != "gauge" and not name.startswith("process_start"):
                assert re.search(rf"(rate|increase)\({name}", expression), expression


def test_every_panel_says_what_it_shows() -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] for panel in panels)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_page_has_every_alert_and_what_to_do() -> None:
    page = (MONITORING.parent / "docs" / "monitoring.md").read_text()
    told = [
        name
        for row in re.findall(r"^\| (Moldau[^|]*)", page, re.MULTILINE)
        for name in re.findall(r"\w+", row)
    ]
    assert sorted(told) == sorted(re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text()))
