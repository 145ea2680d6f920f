"""The packages: an sdist and a wheel that PyPI takes, and the wheel in an empty environment: what a user gets."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

HEAVY = ("pyspark", "pyarrow", "rich", "click", "confluent_kafka", "numpy", "fastapi", "aiohttp", "flask")
README_TEST = """
from confluent_kafka import Producer

def test_fixtures(moldau_bootstrap_servers, moldau_topic):
    producer = Producer({"bootstrap.servers": moldau_bootstrap_servers})
    producer.produce(moldau_topic, b"3 apples")
    assert producer.flush(10) == 0
"""


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_FOR_USERS = re.compile(r"(^|/)(bench|sim|tests?|conftest\.py|test_\w+\.py)(/|$)")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=240)
    return folder


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    (found,) = packages.glob("moldau-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A virtual environment with the wheel, its pinned dependencies and pytest, and nothing of this project's tree."""
    home = tmp_path_factory.mktemp("wheel") / "env"
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    lock = str(ROOT / "requirements" / "base.lock")
    subprocess.run([*pip, "--require-hashes", "-r", lock], check=True, timeout=240)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True, timeout=60)
    subprocess.run([*pip, "pytest"], check=True, timeout=120)
    yield home


def old_python() -> str:
    """A Python that is too old."""
    for name in ("python3.10", "python3.9", "python3.8"):
        for path in (
            shutil.which(name),
            *sorted(Path.home().glob(f".pyenv/versions/{name[6:]}.*/bin/python")),
        ):
            if (
                path
                and subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode
                == 0
            ):
                return str(path)
    pytest.skip("There is no Python older than 3.11 here.")


def test_pip_of_an_older_python_says_which_version_moldau_needs(tmp_path: Path) -> None:
    subprocess.run([old_python(), "-m", "venv", str(tmp_path / "env")], check=True, timeout=120)
    pip = [str(tmp_path / "env" / "bin" / "pip"), "install", str(ROOT)]
    refused = subprocess.run(pip, capture_output=True, text=True, timeout=240, check=False, env=clean())
    assert refused.returncode != 0
    assert "Package 'moldau' requires a different Python" in refused.stderr and ">=3.11" in refused.stderr


def test_make_with_an_older_python_says_which_version_moldau_needs(tmp_path: Path) -> None:
    pretending = "import sys; sys.version_info = (3, 10, 13, 'final', 0); exec(sys.argv[1])"
    old = tmp_path / "python3"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretending}" "$2"\n')
    old.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements/dev.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    refused = subprocess.run(
        ["make", "setup", f"PYTHON={old}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode != 0
    assert f"Moldau needs Python 3.11 or newer, and {old} is 3.10" in refused.stderr
    assert not (tmp_path / ".venv").exists()


def clean() -> dict[str, str]:
    return {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MOLDAU", "PYTEST"))
    }


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def modules_of(wheel: Path) -> dict[str, str]:
    """Each module of the wheel with its source."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith(".py")
        }


def test_pypi_takes_both_packages(packages: Path) -> None:
    files = sorted(map(str, packages.iterdir()))
    assert [Path(file).suffix for file in files] == [".whl", ".gz"]
    check = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(check, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


def test_the_metadata_say_who_made_it_where_it_is_and_what_it_runs_on(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Author"] or metadata["Author-email"]
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert urls.keys() >= {"Homepage", "Documentation", "Changelog"}
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_classifiers_claim_the_pythons_and_the_system_that_are_tested() -> None:
    claimed = set(PROJECT["classifiers"])
    pythons = {text.rpartition(" ")[2] for text in claimed if re.fullmatch(r".* :: Python :: 3\.\d+", text)}
    (tested,) = re.findall(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert pythons == set(tested.split())
    assert {text for text in claimed if text.startswith("Operating")} == {
        "Operating System :: POSIX :: Linux"
    }


def test_the_changelog_has_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.M)[0] == PROJECT["version"]


def test_the_wheel_has_nothing_that_only_benchmarks_and_tests_use(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert {name.partition("/")[0] for name in names} == {"moldau", "pyspark_moldau", "pyspark_moldau_lake"}
    assert [name for name in names if NOT_FOR_USERS.search(name)] == []
    assert {Path(name).suffix for name in names} <= {".py", ".typed", ".sql", ".json", ".txt"}


def test_no_module_of_the_wheel_wants_one_that_is_not_in_it(wheel: Path) -> None:
    modules = modules_of(wheel)
    missing = {
        (name, wanted)
        for name, source in modules.items()
        for wanted in imported(ast.parse(source))
        if wanted.partition(".")[0] in ("moldau", "bench", "tests") and wanted not in modules
    }
    assert not missing


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_the_sdist_has_what_it_takes_to_build_and_to_test(packages: Path) -> None:
    (sdist,) = packages.glob("moldau-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "requirements/base.lock",
        "Makefile",
    }
    assert names >= {"src/moldau/sim/__main__.py", "bench/__main__.py", "tests/conftest.py", "docs/README.md"}
    assert not [name for name in names if name.startswith((".venv", "dist/")) or name.endswith(".pyc")]


def test_up_runs_from_the_wheel_until_it_is_told_to_stop(environment: Path, tmp_path: Path) -> None:
    command = [str(environment / "bin" / "moldau"), "up", "--port", "0", "--data", ":temp:"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=clean()
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready: bootstrap.servers=")
        script = (
            "import sys; from confluent_kafka.admin import AdminClient;"
            "print(AdminClient({'bootstrap.servers': sys.argv[1]}).list_topics(timeout=10).cluster_id)"
        )
        address = ready.strip().split("=", 1)[1]
        python = str(environment / "bin" / "python")
        answer = subprocess.run(
            [python, "-c", script, address],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
            env=clean(),
        )
        assert len(answer.stdout.strip()) == 22
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_pytest_fixtures_work_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(README_TEST)
    run = subprocess.run(
        [str(environment / "bin" / "python"), "-m", "pytest", "-q", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=clean(),
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout


def test_a_running_broker_imports_no_more_than_it_uses(environment: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from moldau.testing import Cluster\n"
        "with Cluster():\n"
        f"    print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    run = subprocess.run(
        [str(environment / "bin" / "python"), "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=clean(),
        check=False,
    )
    assert run.stdout.strip() == "[]", run.stdout + run.stderr


def test_what_users_install_has_no_benchmarks_and_needs_none(environment: Path, tmp_path: Path) -> None:
    look = """
import importlib.util
from moldau.cli import zookeeper_ensemble
print([name for name in ("bench", "moldau.bench") if importlib.util.find_spec(name)])
"""
    python = str(environment / "bin" / "python")
    done = subprocess.run(
        [python, "-c", look],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=clean(),
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
