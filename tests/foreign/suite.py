"""What a foreign suite is: how to build it, which tests it has, how to run one and how to read what it printed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """How one test ended; `note` is what the suite says about it, in a few words."""

    name: str
    outcome: Outcome
    note: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A process to run; `environment` is added to this process's own."""

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a command: its exit code (None: it was ended at its time-out) and all that it printed."""

    code: int | None
    output: str


class Suite(ABC):
    """One suite at one version. A run is a process; it may hold several tests of the suite."""

    name: ClassVar[str]
    version: ClassVar[str]
    settings: ClassVar[Mapping[str, object]] = {}
    """The broker settings that the suite takes for granted."""
    kafka_settings: ClassVar[Mapping[str, object]] = {}
    """What only Apache Kafka is told, for what Moldau has no setting yet."""
    topics: ClassVar[Sequence[str]] = ()
    """Topics of one partition that must be there."""
    run_timeout_s: ClassVar[float] = 120
    whole_timeout_s: ClassVar[float] = 3600
    for_one_broker: ClassVar[frozenset[str]] = frozenset()
    """The runs that take it for granted that one broker's answer holds everything: left out where there are several."""
    is_in_ci: ClassVar[bool] = True
    """Whether any of it runs in CI."""
    not_in_ci: ClassVar[frozenset[str]] = frozenset()
    """The runs that take too long for CI's 15 minutes, or are not sure enough on a busy machine."""

    @abstractmethod
    def build(self, folder: Path) -> None:
        """Fetch and build everything in an empty folder; `Unavailable` or `CommandFailed` where that cannot be."""

    @abstractmethod
    def runs(self, folder: Path) -> list[str]:
        """The runs that talk to a broker, in order."""

    @abstractmethod
    def command(self, folder: Path, scratch: Path, run: str, address: str, *, is_ci: bool) -> Command:
        """The process of a run; `scratch` is an empty folder of its own, thrown away after it, `address` that of
        the broker, or of each of several, with commas."""

    @abstractmethod
    def read(self, run: str, ended: Ended) -> list[Result]:
        """The results of the tests of a run. A run that tells nothing is a failed test of its own name."""


def alone(run: str, ended: Ended, outcome: Outcome | None, note: str = "") -> list[Result]:
    """The one result of a run with one test: failed where it said nothing, or was not there at its end."""
    if ended.code is None:
        return [Result(run, Outcome.FAILED, "did not end in time")]
    if outcome is None:
        return [Result(run, Outcome.FAILED, f"ended with code {ended.code} and no result")]
    return [Result(run, outcome, note)]
