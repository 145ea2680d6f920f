"""The blocks of docs/pipelines.md on the lake, run one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark import delta_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "pipelines.md"


def blocks() -> list[str]:
    _, _, section = PAGE.read_text().partition("\n## The lake\n")
    section = section.partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_what_the_page_shows_is_so(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "changes").mkdir()
    (tmp_path / "events" / "1.json").write_text('{"timestamp": "2026-11-18T12:00:00Z", "page": "/"}\n' * 50)
    rows = ["1,1,insert,a", "1,2,update,b", "2,1,insert,c", "2,2,delete,"]
    (tmp_path / "changes" / "1.csv").write_text("\n".join(rows))
    names: dict[str, Any] = {
        "spark": spark,
        "lake": str(tmp_path / "lake"),
        "events": spark.readStream.schema("timestamp timestamp, page string").json(str(tmp_path / "events")),
        "changes": spark.readStream.schema("id long, version long, op string, name string").csv(
            str(tmp_path / "changes")
        ),
    }
    shown = blocks()
    assert len(shown) == 5
    for block in shown:
        exec(block, names)
    assert names["table"].count() == 50
    assert spark.read.parquet(str(tmp_path / "lake" / "copy")).count() == 50
    (total,) = delta_reader.rows_of(tmp_path / "lake" / "totals")
    assert total["count"] == 50
    assert delta_reader.rows_of(tmp_path / "lake" / "customers") == [{"id": 1, "name": "b"}]
