"""What an audit's project says, and what is wrong with one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.spark.audit.project import write_audit
from moldau.spark.audit.settings import NoAudit, read_settings

pytest.importorskip("yaml")  # comes with pyspark[pipelines]
SERVERS = {"moldau.audit.kafka.bootstrap.servers": "localhost:9092"}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    from moldau.spark.pipeline.project import load_project

    tables = {"orders": ["/lake/it's", "/lake/: rejected"]}
    write_audit(tmp_path / "watch", ["orders", "payments"], tables, "localhost:9092,other:9093")
    project = load_project(tmp_path / "watch")
    settings = read_settings(project.configuration)
    assert settings.topics == ("orders", "payments")
    assert settings.tables == {"orders": ("/lake/it's", "/lake/: rejected")}
    assert settings.kafka == {"kafka.bootstrap.servers": "localhost:9092,other:9093"}
    assert (settings.rules.window_ms, settings.rules.lateness_ms) == (60_000, 300_000)
    assert settings.rules.with_lake == {"orders"}
    assert settings.group == "moldau-audit-watch"
    with pytest.raises(FileExistsError):
        write_audit(tmp_path / "watch", ["orders"], {}, "localhost:9092")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "moldau.audit.topics is missing"),
        ({"moldau.audit.topics": " , "}, "moldau.audit.topics is missing"),
        ({"moldau.audit.topics": "orders"}, "bootstrap.servers is missing"),
        ({"moldau.audit.topics": "a", "moldau.audit.tables": "/lake/a", **SERVERS}, "must be JSON"),
        ({"moldau.audit.topics": "a", "moldau.audit.tables": '{"b": "/x"}', **SERVERS}, "names b"),
        (
            {"moldau.audit.topics": "a", "moldau.audit.window": "soon", **SERVERS},
            "window=soon is no duration",
        ),
        ({"moldau.audit.topics": "a", "moldau.audit.window": "0 s", **SERVERS}, "window=0 s is no duration"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(NoAudit, match=reason):
        read_settings(settings)
