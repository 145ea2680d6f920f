"""`run --full-refresh`: tables are emptied and computed anew, from what their sources hold now.

A table and the checkpoints of the flows into it are removed together, or rows would be missing or doubled: what is to
be removed is noted first, and a run that finds a note finishes it before anything else. Who reads a table as a stream
must be refreshed with it, since the rows that it has seen are no longer there. A sink that is refreshed gets its rows
once more: what is outside the storage is not removed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from moldau.spark.pipeline.declared import Mistake, Mistakes, Place
from moldau.spark.pipeline.graph import Built
from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.tables import CHECKPOINTS, OWN_FOLDER

NOTE = "refresh.json"


def chosen(project: Project, built: Sequence[Built], names: Collection[str], everything: bool) -> list[str]:
    """The outputs to refresh; `Mistakes` where that cannot be."""
    outputs = list(dict.fromkeys(one.output.name for one in built))
    if everything:
        return outputs
    if found := [*unknown(project, outputs, names), *left_behind(built, names)]:
        raise Mistakes(found)
    return list(dict.fromkeys(names))


def unknown(project: Project, outputs: Sequence[str], names: Collection[str]) -> Iterator[Mistake]:
    for name in names:
        if name not in outputs:
            near = get_close_matches(name, outputs, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(outputs)}."
            yield Mistake(Place(project.spec), f"there is no '{name}' to refresh.", hint)


def left_behind(built: Sequence[Built], names: Collection[str]) -> Iterator[Mistake]:
    """Flows that stream from a table that is refreshed, into an output that is not."""
    for one in built:
        for name in one.streams:
            if name in names and one.output.name not in names:
                yield Mistake(
                    one.flow.place,
                    f"'{one.flow.name}' reads '{name}' as a stream, so '{one.output.name}' must be refreshed with it.",
                    f"Name both: --full-refresh {name},{one.output.name}; or use --full-refresh-all.",
                )


def remove(project: Project, outputs: Sequence[str]) -> None:
    """What these outputs hold, and how far the flows into them have come."""
    own = own_folder(project)
    own.mkdir(parents=True, exist_ok=True)
    draft = own / f"{NOTE}.draft"
    draft.write_text(json.dumps(list(outputs)), encoding="utf-8")
    os.replace(draft, own / NOTE)
    finish(project)


def finish(project: Project) -> None:
    """A removal that was begun, here or in a run that was killed."""
    if project.local_storage is None:
        return
    own = own_folder(project)
    note = own / NOTE
    if not note.exists():
        return
    for name in json.loads(note.read_text(encoding="utf-8")):
        for folder in (project.local_storage / CHECKPOINTS / name, project.local_storage / name):
            if folder.exists():
                shutil.rmtree(folder)
    note.unlink()


def own_folder(project: Project) -> Path:
    storage = project.local_storage
    if storage is None:
        raise Mistake(Place(project.spec), f"the storage {project.storage} is not a folder of this machine.")
    return storage / OWN_FOLDER
