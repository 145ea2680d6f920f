"""`moldau sql`: SQL over a cluster's topics, at a prompt or from a script.

Everything that needs Spark is imported within the command, so that the help is there without it.
"""

from __future__ import annotations

import sys

import click

from moldau.cli.complete import files, folders
from moldau.cli.errors import file_error, usage
from moldau.cli.help import Command
from moldau.cli.options import Target, Whole, cluster_options, json_option, parse_pairs
from moldau.cli.pipeline import master_option, missing


@click.command(
    name="sql",
    cls=Command,
    examples="""
# A prompt; HELP says what there is, Tab completes topics and columns
moldau sql
# What is there, for a script
moldau sql -e 'SELECT item, count(*) FROM orders GROUP BY item' --json
# Rows as they come
moldau sql -e 'SELECT * FROM STREAM orders WHERE price > 100'
# A query that goes on, from a topic into another
moldau sql -e 'CREATE STREAMING TABLE teas AS
  SELECT * FROM STREAM orders WHERE item = "tea"'
# Statements from a file, with tables that another one declares
moldau sql --init tables.sql -f report.sql --csv
""",
)
@click.option(
    "-e", "--execute", "texts", multiple=True, metavar="SQL", help="Run these statements, then end."
)
@click.option(
    "-f",
    "--file",
    "files_",
    multiple=True,
    metavar="FILE",
    shell_complete=files,
    help="Run the statements of a file, then end; - is stdin.",
)
@click.option(
    "--init",
    multiple=True,
    metavar="FILE",
    shell_complete=files,
    help="Statements to begin with, such as CREATE TABLE for topics.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print rows as CSV.")
@click.option(
    "--max-rows",
    type=Whole(1),
    metavar="N",
    help="Show no more rows of a batch query.  [default: 1000 at the prompt]",
)
@click.option(
    "--storage",
    metavar="FOLDER",
    shell_complete=folders,
    help="Keep checkpoints and tables of the lake there.  [default: a temporary folder]",
)
@master_option
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")
@cluster_options
@json_option("Print a JSON document per line for each row.")
def command(
    target: Target,
    texts: tuple[str, ...],
    files_: tuple[str, ...],
    init: tuple[str, ...],
    as_csv: bool,
    max_rows: int | None,
    storage: str | None,
    master: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Query topics with SQL, on Spark, at a prompt or from a script.

    A topic is a table, by the columns that its JSON shows or that CREATE TABLE declares. SELECT .. FROM orders reads
    what is there, SELECT .. FROM STREAM orders prints rows as they come until Ctrl-C, and CREATE STREAMING TABLE .. AS
    SELECT goes on until it is stopped. Ctrl-C ends a query, not the prompt.
    """
    if as_csv and as_json:
        raise usage("--csv and --json exclude each other.")
    scripts = [*(("", text) for text in texts), *((name, read(name)) for name in files_)]
    begin = [(name, read(name)) for name in init]
    if not scripts and not sys.stdin.isatty():
        scripts = [("", sys.stdin.read())]
    try:
        from moldau.cli.sql_run import SqlOptions, run
    except ModuleNotFoundError as error:
        raise missing(error) from None
    style = "json" if as_json else "csv" if as_csv else "table"
    pairs = parse_pairs(settings, "--set")
    return run(target, SqlOptions(begin, scripts, style, max_rows, storage, master, pairs))


def read(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise usage(f"{name} is not a text in UTF-8.") from None
    except OSError as error:
        raise file_error(error, name) from error
