"""`moldau doctor`: what is missing on this machine, and what is wrong with a data folder or a cluster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import click
from click.core import ParameterSource

from moldau.cli.complete import files, folders
from moldau.cli.errors import CliError, Exit
from moldau.cli.findings import Section, Status, print_section
from moldau.cli.help import Command
from moldau.cli.options import Target, cluster_options, json_option
from moldau.cli.output import good, print_json, say

DEFAULT_DATA = "moldau-data"
DEFAULT_PORT = 9092
LOCAL_TIMEOUT_S = 2.0


@click.command(
    name="doctor",
    cls=Command,
    examples="""
moldau doctor
# A data folder, with every batch of every log
moldau doctor --data ./moldau-data --deep
# A broker's certificates and listeners, before it is started
moldau doctor --config server.properties
# A cluster
moldau doctor --bootstrap localhost:9092
""",
)
@click.option(
    "-d",
    "--data",
    default=DEFAULT_DATA,
    show_default=True,
    metavar="DIR",
    shell_complete=folders,
    help="A data folder of `moldau up` or of one broker.",
)
@click.option(
    "--config",
    metavar="FILE",
    shell_complete=files,
    help="A broker's configuration: its certificates, keys and listeners.",
)
@click.option("--deep", is_flag=True, help="Also read all logs and check every batch.")
@cluster_options
@json_option()
@click.pass_context
def command(
    ctx: click.Context, data: str, config: str | None, deep: bool, target: Target, as_json: bool
) -> int:
    """Check this machine, a data folder and a cluster.

    Without options it looks at the machine, at ./moldau-data where that exists, and at the cluster where
    MOLDAU_BOOTSTRAP or a profile names one or a broker listens on localhost:9092. It changes nothing. The
    exit code is 1 where a problem was found.
    """
    sections = examine(
        data if asked(ctx, "data") or os.path.isdir(data) else None,
        target if asked(ctx, "bootstrap") or target.origin else local_cluster(target),
        config,
        deep=deep,
    )
    if as_json:
        print_json([section.document() for section in sections])
    else:
        for section in sections:
            print_section(section)
            say("")
    found = Counter(finding.status for section in sections for finding in section.findings)
    if not as_json:
        say(summary(found))
    return Exit.FAILED if found[Status.PROBLEM] else Exit.OK


def summary(found: Mapping[Status, int]) -> str:
    if problems := found[Status.PROBLEM]:
        return click.style(f"{problems} to mend.", fg="red", bold=True)
    if warnings := found[Status.WARNING]:
        return click.style(f"{warnings} to look at.", fg="yellow", bold=True)
    return good("No problem found.")


def asked(ctx: click.Context, parameter: str) -> bool:
    """Whether the user named it, as an option or a variable."""
    return ctx.get_parameter_source(parameter) not in (ParameterSource.DEFAULT, None)


def local_cluster(target: Target) -> Target | None:
    """The cluster on the default address, if a broker answers there: nobody said that there must be one."""
    from moldau.cli.client import Connection

    quickly = replace(target, timeout_s=min(target.timeout_s, LOCAL_TIMEOUT_S))
    try:
        Connection(quickly).metadata()
    except CliError:
        return None
    return target


def examine(data: str | None, target: Target | None, config: str | None, *, deep: bool) -> list[Section]:
    from moldau.cli.doctor_machine import examine_machine
    from moldau.cli.doctor_security import examine_config, examine_folder, examine_profiles

    machine = [*examine_machine(data or DEFAULT_DATA, DEFAULT_PORT), *examine_profiles()]
    sections = [Section("This machine", machine)]
    if config is not None:
        sections.append(Section("Configuration", list(examine_config(config))))
    if data is not None:
        from moldau.cli.doctor_data import examine_data

        found = [*examine_data(data, deep=deep), *examine_folder(data)]
        sections.append(Section("Data folder", found))
    if target is not None:
        from moldau.cli.doctor_cluster import examine_cluster

        sections.append(Section("Cluster", list(examine_cluster(target))))
    return sections
