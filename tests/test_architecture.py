"""docs/ARCHITECTURE.md is true: the classes, signatures, modules and files that it names are there, as it says."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.config.table import KEYS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "moldau"
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CLASS = re.compile(r"class (\w+):  # ([a-z_.]+)")
METHOD = re.compile(r"    (async )?def (\w+)\(self(?:, ([^)]*))?\)(?: -> ([^#]+?))?(?:  #.*)?")
NAMES = re.compile(r"    ([a-z_]+(?:, [a-z_]+)*)(?:  #.*)?")
LINE_CHARACTERS_MAX = 120
PACKAGES = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
SETTINGS = {key.name for key in KEYS}


class Said(NamedTuple):
    """A line in a code block, and the class that it is about."""

    module: str
    class_name: str
    line: str


def said() -> Iterator[Said]:
    for block in CODE.findall(PAGE):
        place: tuple[str, str] | None = None
        for line in block.splitlines():
            if (found := CLASS.match(line)) is not None:
                place = found[2], found[1]
                yield Said(*place, line)
            elif line.strip() and not line.lstrip().startswith("#"):
                assert place is not None, f"of which class is this? {line}"
                yield Said(*place, line)


def label(one: Said) -> str:
    return f"{one.class_name}: {one.line.strip()[:50]}"


def has(owner: type, name: str) -> bool:
    """As an attribute of the class, a field of it, or what its constructor sets."""
    return hasattr(owner, name) or name in owner.__annotations__ or f"self.{name}" in inspect.getsource(owner)


@pytest.mark.parametrize("one", list(said()), ids=label)
def test_what_code_blocks_say_of_a_class_is_so(one: Said) -> None:
    owner = getattr(importlib.import_module(f"moldau.{one.module}"), one.class_name)
    if CLASS.match(one.line):
        return
    method = METHOD.fullmatch(one.line)
    if method is None:
        names = NAMES.fullmatch(one.line)
        assert names is not None, "neither names nor a method on one line"
        assert [name for name in names[1].split(", ") if not has(owner, name)] == []
        return
    is_async, name, parameters, returns = method.groups()
    found = inspect.getattr_static(owner, name)
    signature = inspect.signature(found)
    assert list(signature.parameters)[1:] == (parameters.split(", ") if parameters else [])
    assert signature.return_annotation.replace("'", "") == (returns or "None")
    assert inspect.iscoroutinefunction(found) == bool(is_async)


def named() -> list[str]:
    """What is quoted and looks like a module, or something in one: it begins with a package of ours."""
    quoted = set(re.findall(r"`([a-z_]+(?:\.\w+)+)", CODE.sub("", PAGE)))
    return sorted(name for name in quoted if name.split(".")[0] in PACKAGES and name not in SETTINGS)


def is_there(name: str) -> bool:
    path, parts = SOURCE, name.split(".")
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if parts and (path / f"{parts[0]}.py").is_file():
        path /= parts.pop(0)
    owner: Any = importlib.import_module(".".join(["moldau", *path.relative_to(SOURCE).parts]))
    for part in parts:
        if not hasattr(owner, part):
            return isinstance(owner, type) and has(owner, part)
        owner = getattr(owner, part)
    return True


@pytest.mark.parametrize("name", named())
def test_the_modules_that_are_named_are_there(name: str) -> None:
    assert is_there(name)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE))))
def test_the_files_that_are_named_are_there(name: str) -> None:
    assert any((place / name).is_file() for place in (ROOT, SOURCE)) or any(
        any(part.rglob(name)) for part in (SOURCE, ROOT / "tests")
    )


def test_every_folder_of_the_package_is_in_the_map() -> None:
    listed = {name.split("/")[0] for name in re.findall(r"`([a-z]+/(?:[a-z]+/)*)`", PAGE)}
    assert PACKAGES - listed == set()


@pytest.mark.parametrize("package", ["log/inspect", "coordinator/group/consumer"])
def test_a_head_that_maps_its_package_names_each_module(package: str) -> None:
    head = (SOURCE / package / "__init__.py").read_text()
    modules = {path.stem for path in (SOURCE / package).glob("*.py")} - {"__init__"}
    assert {name for name in modules if f"`{name}`" not in head and f"`{name}." not in head} == set()


def test_no_line_needs_a_magnifying_glass() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > LINE_CHARACTERS_MAX] == []
