"""Options that many commands share, each defined once: those of the way to a cluster (`--bootstrap`, `--profile`,
`--command-config`, `-X`, `--timeout`), `--json`, `--set`.

`@cluster_options` hands the command one `target: Target`, the cluster it talks to, instead of the loose
options.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from moldau.cli.errors import usage

DEFAULT_BOOTSTRAP = "localhost:9092"
MAY_BE_BYTES = {"values", "path", "data"}  # messages and file names; all else that goes to a cluster is text
Function = TypeVar("Function", bound=Callable[..., Any])

# Whether the current command line asked for JSON: `app.run` must know it after the command's context is gone.
_json_wanted = False


def json_wanted() -> bool:
    return _json_wanted


def expect_json(arguments: Sequence[str]) -> None:
    """A new command line begins. Where it is wrong before its `--json` is read, the error is JSON all the same."""
    global _json_wanted
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _json_wanted = "--json" in options


@dataclass(frozen=True)
class Target:
    """The cluster that a command talks to, and how."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    """In librdkafka's names; some are secret."""
    timeout_s: float = 10.0
    origin: str = ""
    """Whose settings these are, if not those of options alone: `the profile prod`, or a file."""
    has_its_address: bool = False
    """The address is from there too."""


class Whole(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.3
    """A whole number of at least `least`. Click's own range type clutters the help."""

    name = "number"

    def __init__(self, least: int = 0, most: int | None = None) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"'{value}' is not a whole number.", param, ctx)
        if number < self.least or (self.most is not None and number > self.most):
            allowed = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
            self.fail(f"{number} is not {allowed}.", param, ctx)
        return number


class Amount(click.ParamType):  # type: ignore[type-arg]
    """A number of at least `least`, with decimals or without."""

    name = "number"

    def __init__(self, least: float = 0.0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"'{value}' is not a number.", param, ctx)
        if not number >= self.least:
            self.fail(f"{number:g} is not at least {self.least:g}.", param, ctx)
        return number


def cluster_options(function: Function) -> Function:
    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> Any:
        own = {name: kwargs.pop(name) for name in ("bootstrap", "profile", "property_")}
        require_text(*own.values(), *(kwargs[name] for name in kwargs.keys() - MAY_BE_BYTES))
        file, timeout_s = kwargs.pop("command_config"), kwargs.pop("timeout")
        context = click.get_current_context()
        target = target_of(context, own["bootstrap"], own["profile"], file, own["property_"], timeout_s)
        return function(*args, target=target, **kwargs)

    decorated = click.option(
        "--timeout",
        type=Amount(least=0.1),
        default=10.0,
        metavar="SECONDS",
        help="How long to wait for the cluster.  [default: 10]",
    )(command)
    decorated = click.option(
        "-X",
        "property_",
        multiple=True,
        metavar="KEY=VALUE",
        help="A property of librdkafka, such as security.protocol=SSL.",
    )(decorated)
    decorated = click.option(
        "--command-config",
        metavar="FILE",
        shell_complete=lazily("files"),
        help="Settings of a Java client or of librdkafka (client.properties).",
    )(decorated)
    decorated = click.option(
        "--profile",
        envvar="MOLDAU_PROFILE",
        show_envvar=True,
        metavar="NAME",
        shell_complete=lazily("profile_names"),
        help="The cluster and settings of `moldau profile`.  [default: as `profile use` says]",
    )(decorated)
    return click.option(  # type: ignore[return-value]
        "-b",
        "--bootstrap",
        envvar="MOLDAU_BOOTSTRAP",
        show_envvar=True,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        metavar="HOST:PORT",
        help="Any broker of the cluster; several with commas.",
    )(decorated)


def lazily(name: str) -> Callable[..., Any]:
    """A completion of `cli.complete`, which needs this module."""

    def complete(*arguments: Any) -> Any:
        from moldau.cli import complete as completions

        return getattr(completions, name)(*arguments)

    return complete


def target_of(
    context: click.Context,
    bootstrap: str,
    profile: str | None,
    file: str | None,
    properties: Sequence[str],
    timeout_s: float,
) -> Target:
    """The cluster that a command line means; `-X` is stronger than what a profile or a file says."""
    from moldau.cli.profiles import Given, Said, way_of

    how = {
        ParameterSource.COMMANDLINE: Said.BY_OPTION,
        ParameterSource.ENVIRONMENT: Said.BY_VARIABLE,
    }

    def given(name: str, value: str | None) -> Given:
        source = context.get_parameter_source(name)
        return Given(value, Said.NOT if source is None else how.get(source, Said.NOT))

    way = way_of(given("bootstrap", bootstrap), given("profile", profile), file)
    settings = way.properties | parse_pairs(properties, "-X")
    return Target(way.bootstrap or bootstrap, settings, timeout_s, way.origin, way.has_its_address)


def require_text(*values: Any) -> None:
    """Refuse arguments whose bytes are no UTF-8: librdkafka crashes on some of them."""
    for value in values:
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                raise usage(
                    f"'{shown}' is not text in UTF-8.",
                    "Names, keys and settings are; check the shell's quoting and locale.",
                )


def remember_json(_ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> bool:
    global _json_wanted
    _json_wanted = wanted
    return wanted


def json_option(text: str = "Print one JSON document for programs.") -> Callable[[Function], Function]:
    # Eager, so that even a mistake in another option is reported as JSON.
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=remember_json, help=text)


def set_option(*names: str, text: str, complete: Callable[..., Any]) -> Callable[[Function], Function]:
    return click.option(
        *names, "settings", multiple=True, metavar="KEY=VALUE", help=text, shell_complete=complete
    )


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` texts as a dict; the value may be empty and may contain `=`."""
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise usage(f"{option} takes KEY=VALUE, not '{pair}'.")
        result[key.strip()] = value
    return result
