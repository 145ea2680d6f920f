"""A project on disk: `spark-pipeline.yml` (or .yaml) and the files that its `libraries` name.

Read as Spark's own `spark-pipelines` reads it (pyspark/pipelines/cli.py), with the line of every mistake. One thing is
added: `storage` may be a path relative to the project's folder, beside the absolute paths and addresses that Spark
takes.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from moldau.spark.pipeline.declared import Mistake, Place

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
REQUIRED = ("name", "storage")
SUFFIXES = (".py", ".sql")


@dataclass(frozen=True)
class Project:
    folder: Path
    spec: str
    """The name of the spec's file."""
    name: str
    storage: str
    """As Spark takes it: an absolute path or an address."""
    includes: tuple[tuple[str, int], ...] = ()
    """The globs of `libraries`, with their lines."""
    catalog: str | None = None
    database: str | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)

    @property
    def local_storage(self) -> Path | None:
        """The storage where it is a folder of this machine's file system."""
        parts = urlsplit(self.storage)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        return None if parts.scheme else Path(self.storage)

    def inside(self, *names: str) -> str:
        """A path within the storage."""
        return "/".join([self.storage.rstrip("/"), *names])

    def files(self) -> list[Path]:
        """What `libraries` name, in an order that does not depend on the file system."""
        found: dict[Path, None] = {}
        for pattern, line in self.includes:
            matching = sorted(self._matching(pattern, line))
            if not matching:
                raise Mistake(Place(self.spec, line), f"no file matches '{pattern}'.")
            found.update(dict.fromkeys(matching))
        return list(found)

    def _matching(self, pattern: str, line: int) -> Iterator[Path]:
        for path in self.folder.glob(pattern):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            if path.suffix not in SUFFIXES:
                raise Mistake(
                    Place(self.spec, line),
                    f"'{pattern}' matches {path.relative_to(self.folder)}, which is neither .py nor .sql.",
                    "Spark's own runner refuses such files too: move it to another folder.",
                )
            yield path

    def place(self, file: str, line: int | None) -> Place:
        """A place as a person at the project's folder writes it."""
        path = Path(file)
        if path.is_absolute():
            try:
                return Place(str(path.resolve().relative_to(self.folder)), line)
            except ValueError:
                pass
        return Place(file, line)


def find_spec(folder: Path) -> Path:
    """The spec in this folder; a path to the file itself is taken too."""
    if folder.is_file():
        return folder
    found = [folder / name for name in SPEC_NAMES if (folder / name).is_file()]
    if len(found) == 1:
        return found[0]
    place = Place(str(folder))
    if found:
        raise Mistake(place, f"there are {' and '.join(path.name for path in found)}: keep one.")
    hint = "`moldau pipeline new FOLDER` makes a project."
    raise Mistake(place, "there is no spark-pipeline.yml here.", hint)


def load_project(folder: Path) -> Project:
    path = find_spec(folder)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Mistake(Place(path.name), "is not a text in UTF-8.") from None
    return parse_spec(text, path.name, path.parent.resolve())


def parse_spec(text: str, file: str, folder: Path) -> Project:
    spec = SpecReader(text, file)
    fields = spec.top_fields()
    storage, storage_line = fields["storage"]
    configuration, _ = fields.get("configuration", ({}, 0))
    libraries, _ = fields.get("libraries", ([], 0))
    database = fields.get("database", fields.get("schema", (None, 0)))
    return Project(
        folder=folder,
        spec=file,
        name=spec.text("name", *fields["name"]),
        storage=absolute(spec.text("storage", storage, storage_line), folder),
        includes=tuple(spec.includes(libraries)),
        catalog=spec.optional_text("catalog", *fields.get("catalog", (None, 0))),
        database=spec.optional_text("database", *database),
        configuration=spec.configuration(configuration, spec.line_of("configuration")),
    )


def absolute(storage: str, folder: Path) -> str:
    if urlsplit(storage).scheme:
        return storage
    return os.path.normpath(folder / os.path.expanduser(storage))


class SpecReader:
    """One spec's YAML, with the line of each part."""

    def __init__(self, text: str, file: str) -> None:
        import yaml

        self._file = file
        self._lines: dict[str, int] = {}
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
            self._data = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            raise Mistake(Place(file, line), f"is not YAML: {error.problem}.") from None

    def line_of(self, name: str) -> int:
        return self._lines.get(name, 1)

    def top_fields(self) -> dict[str, tuple[Any, int]]:
        if not isinstance(self._data, dict):
            raise Mistake(Place(self._file, 1), "has no fields.", f"It needs {' and '.join(REQUIRED)}.")
        fields = {}
        for key, _ in self._root.value:
            name, line = key.value, key.start_mark.line + 1
            self._lines[name] = line
            if name not in FIELDS:
                near = get_close_matches(name, FIELDS, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(FIELDS)}."
                raise Mistake(Place(self._file, line), f"there is no field '{name}'.", hint)
            fields[name] = (self._data[name], line)
        for name in REQUIRED:
            if name not in fields:
                raise Mistake(Place(self._file), f"the field '{name}' is missing.")
        return fields

    def text(self, name: str, value: Any, line: int) -> str:
        if not isinstance(value, str) or not value:
            raise Mistake(Place(self._file, line), f"'{name}' must be a text.")
        return value

    def optional_text(self, name: str, value: Any, line: int) -> str | None:
        return None if value is None else self.text(name, value, line)

    def configuration(self, value: Any, line: int) -> Mapping[str, str]:
        if not isinstance(value, dict):
            raise Mistake(Place(self._file, line), "'configuration' must be a list of `key: value` lines.")
        for key, setting in value.items():
            if not isinstance(key, str) or not isinstance(setting, str):
                raise Mistake(
                    Place(self._file, self._line_of_setting(str(key), line)),
                    f"the value of '{key}' must be a text.",
                    f'Put it into quotes: {key}: "{str(setting).lower()}".',
                )
        return value

    def _line_of_setting(self, wanted: str, line: int) -> int:
        for key, value in self._root.value:
            if key.value == "configuration":
                for name, _ in value.value:
                    if name.value == wanted:
                        return int(name.start_mark.line + 1)
        return line

    def includes(self, value: Any) -> Iterator[tuple[str, int]]:
        line = self.line_of("libraries")
        if not isinstance(value, list):
            raise Mistake(Place(self._file, line), "'libraries' must be a list of globs.")
        nodes: list[Any] = next(
            (node.value for key, node in self._root.value if key.value == "libraries"), []
        )
        for entry, node in zip(value, nodes, strict=True):
            line = node.start_mark.line + 1
            try:
                pattern = entry["glob"]["include"]
            except (KeyError, TypeError):
                pattern = None
            if not isinstance(pattern, str):
                raise Mistake(
                    Place(self._file, line),
                    "a library is a glob with one include.",
                    "Write `- glob: {include: transformations/**}`.",
                )
            yield self._checked_glob(pattern, line), line

    def _checked_glob(self, pattern: str, line: int) -> str:
        """A file's path, or a folder's with `/**`: Spark takes nothing else."""
        if not glob.has_magic(pattern):
            return pattern
        if pattern.endswith("/**") and not glob.has_magic(pattern[:-3]):
            return pattern + "/*"
        raise Mistake(
            Place(self._file, line),
            f"'{pattern}' is not a glob that Spark takes.",
            "Name a file, or a folder with /** at its end, such as transformations/**.",
        )
