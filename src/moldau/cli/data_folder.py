"""The data folder as the command line sees it before a broker opens it: made where it is missing, refused where it is
not ours or cannot be written. What is inside a log is the log's own business.
"""

from __future__ import annotations

import os
import sys
import tempfile

from moldau.cli.errors import CliError, Exit

STORE_FILE = "cluster.sqlite"
PID_FILE = "pid"
SECURITY_FOLDER = "security"
KAFKA_METADATA = "__cluster_metadata-0"
# What a file system or a desktop puts into a folder by itself.
HARMLESS = frozenset({"lost+found", ".DS_Store"})


def broker_folder(data: str, broker_id: int) -> str:
    return os.path.join(data, f"broker-{broker_id}")


def cannot_start(message: str, hint: str) -> CliError:
    return CliError(message, hint, Exit.CANNOT_START)


def prepare_folder(folder: str, option: str) -> None:
    """Make the folder, and see that it can be written; `option` is how the user can name another."""
    hint = f"Make it writable for this user, or name another folder with {option}."
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise cannot_start(f"{folder} is not a folder.", f"Name another with {option}.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise cannot_start(f"The data folder {folder} cannot be written: {reason}.", hint) from error


def refuse_foreign_cluster(data: str, option: str) -> None:
    """A folder for `moldau up` is new, empty, or one that `moldau up` made."""
    names = visible_names(data)
    if is_kafkas(names):
        raise cannot_start(
            f"The folder {data} is Apache Kafka's.",
            f"`moldau import --from {data} --data NEW_FOLDER` takes over what is in it; nothing was touched.",
        )
    if is_new(names):
        return
    if STORE_FILE not in names and not any(is_broker_folder(data, name) for name in names):
        raise foreign(data, names, option)


def refuse_foreign_broker(folder: str, option: str) -> None:
    """A folder for one broker is new, empty, or has the mark of a broker's data."""
    names = visible_names(folder)
    if is_kafkas(names):
        raise cannot_start(
            f"The folder {folder} is Apache Kafka's.",
            f"`moldau import --in-place {folder}` makes it Moldau's, `moldau import --from {folder}` copies it;"
            " nothing was touched.",
        )
    others = [name for name in names if name not in (PID_FILE, ".lock") and not name.startswith(STORE_FILE)]
    if others and "meta.properties" not in names:
        raise foreign(folder, names, option)


def is_new(names: list[str]) -> bool:
    """Whether nothing is there, or only what `moldau up --secure` makes before the data."""
    return not set(names) - {SECURITY_FOLDER}


def is_kafkas(names: list[str]) -> bool:
    """Whether Apache Kafka wrote a folder, and no import has made it Moldau's."""
    return KAFKA_METADATA in names and STORE_FILE not in names


def foreign(folder: str, names: list[str], option: str) -> CliError:
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return cannot_start(
        f"The folder {folder} holds other files than Moldau's ({shown}).",
        f"Name a new or empty folder with {option}; nothing in this one was touched.",
    )


def visible_names(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    return sorted(name for name in os.listdir(folder) if name not in HARMLESS)


def only_broker(data: str, default: int) -> int:
    """The id of the one broker whose data is there: an imported one keeps the id that it had."""
    ids = [int(name.rpartition("-")[2]) for name in visible_names(data) if is_broker_folder(data, name)]
    return ids[0] if len(ids) == 1 else default


def is_broker_folder(data: str, name: str) -> bool:
    prefix, _, number = name.rpartition("-")
    return prefix == "broker" and number.isdigit() and os.path.isdir(os.path.join(data, name))


def read_pid(folder: str) -> int | None:
    """The process that serves this folder, if it left its number and still runs."""
    try:
        with open(os.path.join(folder, PID_FILE)) as file:
            pid = int(file.read())
        if sys.platform != "win32":  # there, signal 0 is Ctrl-C
            os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid
