"""The paths that `moldau log` takes, and what is there."""

from __future__ import annotations

import os

from moldau.cli.errors import CliError, not_found, usage
from moldau.log.inspect.files import Place, brokers_in, place_of
from moldau.runtime.ports import Disk

DEFAULT_DATA = "moldau-data"


def existing(disk: Disk, path: str) -> tuple[str, Place]:
    """A path without needless parts, and what it is; CliError where it is not there, or nothing of a log."""
    path = os.path.normpath(path)
    if not disk.exists(path):
        raise not_found(
            f"There is no {path}.", "Name a data folder, a partition's folder or one of its files."
        )
    try:
        place = place_of(disk, path)
    except PermissionError as error:
        raise CliError(f"{path} may not be read by this user.") from error
    if place is Place.OTHER:
        raise usage(f"{path} holds no log.", "Name a data folder, a partition's folder or one of its files.")
    return path, place


def data_folders(disk: Disk, path: str, place: Place) -> list[str]:
    """The brokers' data folders at a path."""
    return brokers_in(disk, path) if place is Place.CLUSTER else [path]


def shown(path: str) -> str:
    """A path as short as it can be told."""
    absolute = os.path.abspath(path)
    relative = (
        os.path.relpath(absolute)
        if os.path.splitdrive(absolute)[0] == os.path.splitdrive(os.getcwd())[0]
        else absolute
    )
    return min(relative, absolute, key=len)
