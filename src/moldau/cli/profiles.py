"""Profiles: named sets of client settings, one per cluster and user, in this user's folder for settings.

A profile is a file `profiles/NAME.properties` with librdkafka's names, for this user alone; `profile` beside the
folder names the one that is used where a command line says nothing. Secrets in it are in the clear, as in any client's
file: its permissions keep them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from moldau.cli.errors import CliError, did_you_mean, not_found, usage

ENDING = ".properties"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SECRET = re.compile(r"password|secret|jaas|key\.pem$|keystore\.key$|oauthbearer\.config$")
HIDDEN = "(hidden)"
BOOTSTRAP = "bootstrap.servers"


class Said(IntEnum):
    """How a command line came to a value."""

    NOT = 0
    BY_VARIABLE = 1
    BY_OPTION = 2


class Given(NamedTuple):
    value: str | None
    said: Said = Said.NOT


class Way(NamedTuple):
    """How a cluster is reached."""

    bootstrap: str | None
    """None: at the default address."""
    properties: dict[str, str]
    origin: str = ""
    """Whose settings these are, for sentences."""
    has_its_address: bool = False

    def __repr__(self) -> str:
        return f"Way({self.bootstrap}, {self.origin})"


def folder() -> str:
    """The XDG base directory specification's place for settings."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "moldau")


def way_of(bootstrap: Given, profile: Given, file: str | None) -> Way:
    """What was said decides: an address over that of a profile, an option over a variable. Where an address is said
    and no profile, the default profile is left out: its password is for another cluster.
    """
    if file is not None and profile.said is Said.BY_OPTION:
        raise usage("--profile and --command-config exclude each other.")
    name = None if file is not None else profile.value or (None if bootstrap.said else default_name())
    if file is not None:
        from moldau.cli.client_file import read_client_file

        settings, origin, said = read_client_file(file), file, Said.BY_OPTION
    elif name is not None:
        settings, origin, said = load(name), f"the profile {name}", profile.said
    else:
        return Way(bootstrap.value if bootstrap.said else None, {})
    own = settings.pop(BOOTSTRAP, None)
    wins = bootstrap.said and (own is None or bootstrap.said >= said)
    return Way(bootstrap.value if wins else own, settings, origin, own is not None and not wins)


# The store


def names() -> list[str]:
    try:
        found = os.listdir(os.path.join(folder(), "profiles"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name.removesuffix(ENDING) for name in found if name.endswith(ENDING) and name[0] != ".")


def path_of(name: str) -> str:
    if not NAME.fullmatch(name):
        raise usage(f"'{name}' is no name for a profile.", "It takes letters, digits, '.', '_' and '-'.")
    return os.path.join(folder(), "profiles", name + ENDING)


def load(name: str) -> dict[str, str]:
    from moldau.cli.client_file import read_client_file

    if not os.path.exists(path_of(name)):
        raise no_profile(name)
    return read_client_file(path_of(name))


def no_profile(name: str) -> CliError:
    known = names()
    listed = f"There are: {', '.join(known)}." if known else "`moldau profile add` makes one."
    return not_found(f"There is no profile '{name}'.", did_you_mean(name, known) or listed)


def save(name: str, settings: Mapping[str, str], *, replace: bool) -> str:
    """Write a profile; its path."""
    from moldau.cli.client_file import HEADER
    from moldau.cli.private_files import make_private_folder, write_file

    path = path_of(name)
    lines = [HEADER, *(f"{key}={escaped(value)}" for key, value in settings.items()), ""]
    try:
        make_private_folder(folder())
        make_private_folder(os.path.dirname(path))
        write_file(path, "\n".join(lines).encode(), replace=replace)
    except FileExistsError:
        raise CliError(f"There is a profile '{name}' already.", "--force replaces it.") from None
    except OSError as error:
        raise cannot_write(error) from error
    return path


def escaped(value: str) -> str:
    """As `parse_properties` reads it."""
    for letter, written in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f")):
        value = value.replace(letter, written)
    return "\\" + value if value.startswith(" ") else value


def remove(name: str) -> None:
    try:
        os.remove(path_of(name))
    except FileNotFoundError:
        raise no_profile(name) from None
    except OSError as error:
        raise cannot_write(error) from error
    if default_name() == name:
        use(None)


def default_name() -> str | None:
    """The profile that is used where nothing else is said."""
    try:
        with open(os.path.join(folder(), "profile"), encoding="utf-8") as file:
            return file.readline().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def use(name: str | None) -> None:
    """Make it the default; None: none is."""
    from moldau.cli.private_files import write_file

    path = os.path.join(folder(), "profile")
    try:
        if name is not None:
            write_file(path, f"{name}\n".encode(), replace=True)
        elif os.path.exists(path):
            os.remove(path)
    except OSError as error:
        raise cannot_write(error) from error


def cannot_write(error: OSError) -> CliError:
    return CliError(
        f"The folder {folder()} cannot be written: {(error.strerror or str(error)).lower()}.",
        "XDG_CONFIG_HOME names another place for settings.",
    )


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Without what is secret, and certificates as what they are."""
    return {name: shown_value(name, value) for name, value in settings.items()}


def shown_value(name: str, value: str) -> str:
    if SECRET.search(name):
        return HIDDEN
    return f"({value.count('-----BEGIN ')} in PEM)" if "-----BEGIN " in value else value
