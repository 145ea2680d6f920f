"""What `moldau up --secure` tells while it runs: the settings to paste, and a profile for the commands here.

The profile is the default one as long as the broker runs, unless there is another; it stays as long as the data. The
password is shown on a terminal; in a pipe or a log the name of its file stands for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator

from moldau.cli import profiles
from moldau.cli.errors import CliError
from moldau.cli.output import dim, note, say
from moldau.cli.secure import Secured, client_settings, texts

NAME = "local"


@contextlib.contextmanager
def kept(made: Secured, *, as_json: bool, is_thrown_away: bool) -> Iterator[Callable[[str], object]]:
    """Gives what is to be called when clients can work, with their bootstrap servers."""
    names: list[str] = []

    def tell(bootstrap: str) -> None:
        try:
            name, is_default = keep(made, bootstrap)
        except CliError as error:
            note(f"There is no profile: {error.message}")
            name, is_default = "", False
        names.append(name)
        show(made, bootstrap, name, is_default=is_default, as_json=as_json)

    try:
        yield tell
    finally:
        with contextlib.suppress(CliError):
            for name in filter(None, names):
                if profiles.default_name() == name:
                    profiles.use(None)
                if is_thrown_away:
                    profiles.remove(name)


def keep(made: Secured, bootstrap: str) -> tuple[str, bool]:
    """The name of the profile, and whether it is the default."""
    port = bootstrap.rpartition(":")[2]
    for name in (NAME, f"{NAME}-{port}"):
        if name not in profiles.names() or is_replaceable(made, name):
            profiles.save(name, client_settings(made, bootstrap), replace=True)
            break
    if profiles.default_name() is None:
        profiles.use(name)
    return name, profiles.default_name() == name


def is_replaceable(made: Secured, name: str) -> bool:
    """Of this data, or of data that are gone."""
    try:
        authority = profiles.load(name).get("ssl.ca.location", "")
    except CliError:
        return False
    return authority == made.authority or not os.path.exists(authority)


def show(made: Secured, bootstrap: str, name: str, *, is_default: bool, as_json: bool) -> None:
    settings = client_settings(made, bootstrap)
    if not sys.stdout.isatty():
        settings["sasl.password"] = f"(in {made.password_file})"
    try:
        if as_json:
            document = {"profile": name or None, "password_file": made.password_file, "settings": settings}
            sys.stdout.write(json.dumps(document) + "\n")
            return
        for title, text in texts(settings).items():
            say(f"\n{dim(f'# {title}')}\n{text}")
        if name:
            how = "used where nothing else is said" if is_default else f"--profile {name}"
            say(f"\n{dim(f'# The other commands of moldau: profile {name}, {how}')}\n")
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
