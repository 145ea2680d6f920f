"""What `moldau doctor` finds: one line per check, and what to do where something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import click

from moldau.cli.output import dim, say, wrapped
from moldau.cli.plot import knows_blocks


class Status(Enum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    status: Status
    subject: str
    text: str
    advice: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"status": self.status.value}


@dataclass(frozen=True)
class Section:
    title: str
    findings: Sequence[Finding]

    def document(self) -> dict[str, Any]:
        return {"title": self.title, "findings": [finding.document() for finding in self.findings]}


_MARKS = {
    Status.OK: ("✓", "+", "green"),
    Status.NOTE: ("·", "-", "blue"),
    Status.WARNING: ("!", "!", "yellow"),
    Status.PROBLEM: ("✗", "x", "red"),
}


def print_section(section: Section) -> None:
    say(click.style(section.title, fg="cyan", bold=True))
    width = max((len(finding.subject) for finding in section.findings), default=0)
    for finding in section.findings:
        fine, plain, colour = _MARKS[finding.status]
        mark = click.style(fine if knows_blocks() else plain, fg=colour, bold=True)
        say(f"  {mark} {finding.subject.ljust(width)}  {wrapped(finding.text, width + 6)}")
        if finding.advice:
            say(" " * (width + 6) + dim(wrapped(finding.advice, width + 6)))


def ok(subject: str, text: str) -> Finding:
    return Finding(Status.OK, subject, text)


def remark(subject: str, text: str, advice: str = "") -> Finding:
    return Finding(Status.NOTE, subject, text, advice)


def warning(subject: str, text: str, advice: str = "") -> Finding:
    return Finding(Status.WARNING, subject, text, advice)


def problem(subject: str, text: str, advice: str = "") -> Finding:
    return Finding(Status.PROBLEM, subject, text, advice)
