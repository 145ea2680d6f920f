"""The table of docs/security.md, made from that of rights: `python -m moldau.security`."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.security.rights import LEFT_OUT, RIGHTS, Right

BEGIN = "<!-- what each API asks: made by `make docs` from moldau.security.rights; do not edit -->"
END = "<!-- end -->"


def with_table(page: str) -> str:
    """The page with the table as it is now between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{_table()}\n{END}{after}"


def _table() -> str:
    rows = ["| API | operation | resource | denied | |", "|---|---|---|---|---|"]
    for api, rights in RIGHTS.items():
        if not rights:
            rows.append(f"| {api} | | | | asks nothing |")
        for number, right in enumerate(rights):
            rows.append(f"| {api if not number else ''} | {_cells(right)} |")
    return "\n".join(rows) + "\n"


def _cells(right: Right) -> str:
    resource = right.resource.name.replace("_", " ").lower()
    error = "" if right.error is LEFT_OUT else ErrorCode(right.error).name.upper()
    return f"{right.operation.name} | {resource} | {error} | {right.note}"
