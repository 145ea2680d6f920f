"""Style as a test: the world comes in through ports, and parts keep their size."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "moldau"
BENCH = ROOT / "bench"

BANNED_MODULES = {
    "time": "Clock",
    "random": "Random",
    "secrets": "Random",
    "socket": "Net",
    "select": "Net",
    "selectors": "Net",
    "threading": "Tasks",
    "subprocess": "Tasks",
    "multiprocessing": "Tasks",
    "concurrent": "Tasks",
    "tempfile": "Disk",
    "shutil": "Disk",
    "pathlib": "Disk",
    "glob": "Disk",
    "mmap": "Disk",
}
BANNED_CALLS = {
    "open": "Disk",
    "print": "logging",
    "input": "the command line",
    "uuid.uuid1": "Random.uuid",
    "uuid.uuid4": "Random.uuid",
    "datetime.now": "Clock",
    "datetime.datetime.now": "Clock",
    "asyncio.wait": "Tasks, which keeps an order",
    "asyncio.TaskGroup": "Tasks, which keeps an order",
    "asyncio.create_task": "Tasks.spawn",
    "asyncio.sleep": "Tasks.sleep",
    "asyncio.get_event_loop": "Tasks",
}
EDGES = ("runtime/real", "cli", "testing", "bench", "spark", "audit")
"""Where the real world begins."""
ALLOWED = {
    ("store/sqlite.py", "sqlite3"),
    ("sim/random.py", "random"),  # a generator that is given its seed
    ("records/compression.py", "mmap"),  # memory without a file
}
LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def modules() -> list[Path]:
    return sorted([*SOURCE.rglob("*.py"), *BENCH.rglob("*.py")])


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT).as_posix()


def is_edge(path: Path) -> bool:
    return name_of(path).startswith(EDGES)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def imported(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.lineno, node.module))
    return found


@pytest.mark.parametrize("path", [p for p in modules() if not is_edge(p)], ids=name_of)
def test_the_world_comes_in_through_ports(path: Path) -> None:
    tree = ast.parse(path.read_text())
    complaints = [
        f"{name_of(path)}:{line}: import {module}: use {BANNED_MODULES[module.split('.')[0]]}"
        for line, module in imported(tree)
        if module.split(".")[0] in BANNED_MODULES and (name_of(path), module) not in ALLOWED
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in BANNED_CALLS or (name.startswith("os.") and not name.startswith("os.path.")):
                replacement = BANNED_CALLS.get(name, "a port")
                complaints.append(f"{name_of(path)}:{node.lineno}: {name}(): use {replacement}")
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{name_of(path)} has no head"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_modules_and_functions_keep_their_size(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LINES_MAX, f"{name_of(path)} has {text.count(chr(10))} lines: reshape it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            lines = node.end_lineno - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{name_of(path)}: {node.name} has {lines} lines"
