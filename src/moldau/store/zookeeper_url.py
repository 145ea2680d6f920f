"""`zookeeper:[USER:PASSWORD@]HOST:PORT,HOST:PORT[/CHROOT][?OPTION=VALUE&...]`: where an ensemble is, and how to get
in.

USER and PASSWORD are ZooKeeper's digest authentication: entries are then made for this user alone. The options are
those of TLS: `tls=true`, `ca=FILE` (the certificates to trust), `cert=FILE` and `key=FILE` (our own),
`key-password=TEXT`, `verify=false`, `hostname=true` (the server's name must be in its certificate). Letters that
mean something in the URL are written %XX in user and password.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

DEFAULT_PORT = 2181
_OPTIONS = {
    "tls": "use_ssl",
    "ca": "ca",
    "cert": "certfile",
    "key": "keyfile",
    "key-password": "keyfile_password",
    "verify": "verify_certs",
    "hostname": "check_hostname",
}
_SWITCHES = ("tls", "verify", "hostname")


class Address(NamedTuple):
    hosts: str
    """HOST:PORT,..."""
    root: str
    """The folder of the cluster: empty, or begins with a slash."""
    credentials: str
    """USER:PASSWORD, or empty."""
    tls: dict[str, Any]
    """By kazoo's names."""


def parse(url: str) -> Address:
    """What follows `zookeeper:`. ValueError with the reason."""
    rest, _, query = url.removeprefix("//").partition("?")
    credentials, at, rest = rest.rpartition("@")
    hosts, slash, root = rest.partition("/")
    if at and (":" not in credentials or credentials.startswith(":")):
        raise ValueError("before the @ stands USER:PASSWORD")
    root = slash + root.rstrip("/")
    if "//" in root or any(part in (".", "..") for part in root.split("/")):
        raise ValueError(f"'{root}' is no path in ZooKeeper")
    return Address(
        ",".join(_host(host) for host in hosts.split(",")),
        root if root != "/" else "",
        unquote(credentials),
        _tls(query),
    )


def _host(text: str) -> str:
    host, colon, port = text.strip().rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    if not host or any(letter.isspace() for letter in host):
        raise ValueError("a server is HOST:PORT, and several are separated by commas")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"'{port}' is no port")
    return f"{host}:{port}"


def _tls(query: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in _OPTIONS:
            raise ValueError(f"there is no option '{option}': {', '.join(_OPTIONS)}")
        if option in _SWITCHES:
            if value not in ("true", "false"):
                raise ValueError(f"{option} is true or false")
            settings[_OPTIONS[option]] = value == "true"
        else:
            settings[_OPTIONS[option]] = value
    if settings and "use_ssl" not in settings:
        settings["use_ssl"] = True
    return settings
