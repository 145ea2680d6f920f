"""`make pythons`: the quick tests on each version of Python that Moldau claims, as far as this machine has them.

`python -m pythons 3.11 3.12 -- ARGUMENT...` looks for each version on the PATH, in pyenv and in uv, makes a virtual
environment for it in .venvs/ with the locked packages, and runs pytest there with the arguments. Interpreters are not
fetched: what is not there is said so, and fails where CI=true.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "dev.lock"
FOLDER = ROOT / ".venvs"
PROBE = "import sys, venv, ensurepip; print('.'.join(map(str, sys.version_info[:3])))"
PROBE_TIMEOUT_S = 30


def main(words: Sequence[str]) -> int:
    stop = words.index("--") if "--" in words else len(words)
    versions, arguments = words[:stop], words[stop + 1 :]
    outcomes = {version: outcome_of(version, arguments) for version in versions}
    width = max(map(len, outcomes), default=0)
    for version, (_, text) in outcomes.items():
        print(f"{version:{width}}  {text}")
    return int(any(has_failed for has_failed, _ in outcomes.values()))


def outcome_of(version: str, arguments: Sequence[str]) -> tuple[bool, str]:
    """Whether it failed, and what is to be said of it."""
    found = find(version)
    if found is None:
        return os.environ.get("CI") == "true", "not on this machine: NOT TESTED"
    python, full = found
    print(f"Python {full}: {python}", flush=True)
    pytest = [str(environment(version, python) / "bin" / "python"), "-m", "pytest", *arguments]
    with subprocess.Popen(pytest, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode != 0, f"Python {full}: {last}"


def find(version: str) -> tuple[str, str] | None:
    """The first interpreter of this version that works and can make environments, and its full version."""
    for candidate in candidates(version):
        try:
            done = subprocess.run(
                [candidate, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        full = done.stdout.strip()
        if done.returncode == 0 and full.rpartition(".")[0] == version:  # a shim of pyenv may lead nowhere
            return candidate, full
    return None


def candidates(version: str) -> Iterator[str]:
    name = f"python{version}"
    if on_path := shutil.which(name):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local" / "share" / "uv" / "python")
    for folder, pattern in ((pyenv, f"{version}.*"), (uv, f"cpython-{version}.*")):
        yield from (str(place / "bin" / name) for place in sorted(folder.glob(pattern), reverse=True))


def environment(version: str, python: str) -> Path:
    """Moldau from this tree, with the locked packages."""
    home = FOLDER / version
    stamp = home / ".setup-done"
    if stamp.exists() and stamp.stat().st_mtime >= LOCK.stat().st_mtime:
        return home
    subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    stamp.touch()
    return home


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
