"""spark-pipeline.yml: what Spark takes is taken, and a mistake is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.spark.pipeline.declared import Mistake
from moldau.spark.pipeline.opening import syntax_mistakes
from moldau.spark.pipeline.project import Project, load_project, parse_spec

pytest.importorskip("yaml")  # comes with pyspark[pipelines]

SPEC = """\
name: shop
storage: {storage}
catalog: spark_catalog
database: sales
configuration:
  spark.sql.shuffle.partitions: "4"
libraries:
  - glob:
      include: transformations/**
  - glob:
      include: one.sql
"""


def parsed(text: str, folder: Path = Path("/projects/shop")) -> Project:
    return parse_spec(text, "spark-pipeline.yml", folder)


def mistake_in(text: str) -> Mistake:
    with pytest.raises(Mistake) as raised:
        parsed(text)
    return raised.value


def test_all_fields_of_spark_are_read() -> None:
    project = parsed(SPEC.format(storage="file:///data/shop"))
    assert (project.name, project.storage) == ("shop", "file:///data/shop")
    assert (project.catalog, project.database) == ("spark_catalog", "sales")
    assert project.configuration == {"spark.sql.shuffle.partitions": "4"}
    assert [pattern for pattern, _ in project.includes] == ["transformations/**/*", "one.sql"]


@pytest.mark.parametrize(
    ("storage", "local", "inside"),
    [
        ("file:///data/the%20shop", "/data/the shop", "file:///data/the%20shop/t"),
        ("/data/shop/", "/data/shop", "/data/shop/t"),
        ("kept", "/projects/shop/kept", "/projects/shop/kept/t"),
        ("s3a://bucket/shop", None, "s3a://bucket/shop/t"),
    ],
)
def test_storage_is_an_address_a_path_or_relative_to_the_project(
    storage: str, local: str | None, inside: str
) -> None:
    project = parsed(SPEC.format(storage=storage))
    assert project.local_storage == (None if local is None else Path(local))
    assert project.inside("t") == inside


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: a\nstorage: b\nlibrary: []\n", 3, "there is no field 'library'"),
        ("name: a\n", None, "'storage' is missing"),
        ("name: a\nstorage: [b\n", 3, "is not YAML"),
        ("- a\n", 1, "has no fields"),
        ("name: 5\nstorage: b\n", 1, "'name' must be a text"),
        ("name: a\nstorage: b\nconfiguration:\n  x: 1\n  y: true\n", 4, "'x' must be a text"),
        (
            "name: a\nstorage: b\nlibraries:\n  - glob:\n      include: t/**/*.py\n",
            4,
            "not a glob that Spark",
        ),
        ("name: a\nstorage: b\nlibraries:\n  - file: x\n", 4, "a library is a glob"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int | None, words: str) -> None:
    mistake = mistake_in(text)
    assert words in mistake.message
    assert (mistake.place.file, mistake.place.line) == ("spark-pipeline.yml", line)


def test_a_misspelled_field_gets_the_near_one() -> None:
    assert mistake_in("name: a\nstorage: b\nlibrary: []\n").hint == "Did you mean libraries?"


def test_files_are_the_python_and_sql_files_in_order(tmp_path: Path) -> None:
    for name in ("t/b.py", "t/a.sql", "t/deep/c.py", "t/__pycache__/b.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "spark-pipeline.yml").write_text(
        "name: a\nstorage: s\nlibraries: [{glob: {include: t/**}}]\n"
    )
    project = load_project(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in project.files()] == [
        "t/a.sql",
        "t/b.py",
        "t/deep/c.py",
    ]
    (tmp_path / "t/notes.txt").write_text("")
    with pytest.raises(Mistake, match=r"notes\.txt, which is neither"):
        project.files()


def test_a_folder_without_a_spec_is_told_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(Mistake) as raised:
        load_project(tmp_path)
    assert raised.value.hint == "`moldau pipeline new FOLDER` makes a project."


def test_syntax_errors_are_found_without_spark(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = (\n")
    (tmp_path / "spark-pipeline.yml").write_text(
        "name: a\nstorage: s\nlibraries: [{glob: {include: a.py}}]\n"
    )
    (mistake,) = syntax_mistakes(load_project(tmp_path))
    assert str(mistake) == "a.py:2: is not Python: '(' was never closed."
