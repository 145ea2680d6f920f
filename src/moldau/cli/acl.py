"""`moldau acl`: who may do what. ACLs are added, listed and removed, and `check` says what they come to.

`check` decides here, with the brokers' own code, from the ACLs that the cluster lists for the resource. What only the
brokers' settings say (`super.users`, `allow.everyone.if.no.acl.found`) it cannot know, and says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import click

from moldau.cli.acl_client import AclClient
from moldau.cli.client import Connection
from moldau.cli.complete import topic_names
from moldau.cli.errors import Exit, not_found, usage
from moldau.cli.help import Group
from moldau.cli.options import Target, cluster_options, json_option
from moldau.cli.output import Column, bold, count_of, good, note, print_json, print_table, say
from moldau.runtime.line import whole
from moldau.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    Entry,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourcePattern,
    is_principal,
    resource_key,
    text_of,
)
from moldau.security.authorizer import Authorizer, Decision, Default

Function = TypeVar("Function", bound=Callable[..., Any])
WORDS = {
    "topic": Resource.TOPIC,
    "group": Resource.GROUP,
    "transactional-id": Resource.TRANSACTIONAL_ID,
    "cluster": Resource.CLUSTER,
}
LOCAL = "127.0.0.1"


class AnOperation(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.3
    """Kafka's name of an operation, in any case and with - or _."""

    name = "operation"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Operation:
        name = str(value).upper().replace("-", "_")
        if name in Operation.__members__ and name != Operation.ANY.name:
            return Operation[name]
        known = ", ".join(word_of(one) for one in Operation if one is not Operation.ANY)
        return self.fail(f"'{value}' is not one of {known}.", param, ctx)


def word_of(operation: Operation) -> str:
    return operation.name.lower().replace("_", "-")


def resource_options(function: Function) -> Function:
    """Hands the command one `resource`: its type and name, or None where none is named."""

    @functools.wraps(function)
    def command(
        *args: Any,
        topic: str | None,
        group: str | None,
        transactional_id: str | None,
        cluster: bool,
        **kwargs: Any,
    ) -> Any:
        cluster_name = CLUSTER_NAME if cluster else None
        names = dict(zip(WORDS, (topic, group, transactional_id, cluster_name), strict=True))
        given = [(WORDS[word], name) for word, name in names.items() if name is not None]
        if len(given) > 1:
            raise usage("More than one resource is named.", "Name one: --topic, --group, ...")
        return function(*args, resource=given[0] if given else None, **kwargs)

    options = (
        click.option(
            "-t", "--topic", metavar="NAME", shell_complete=topic_names, help="A topic; '*' is every one."
        ),
        click.option("-g", "--group", metavar="NAME", help="A consumer group."),
        click.option("--transactional-id", metavar="ID", help="A transactional id."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
    )
    wrapped: Any = command
    for option in reversed(options):
        wrapped = option(wrapped)
    return cast("Function", wrapped)


def principal_named(text: str) -> str:
    """`alice` is `User:alice`."""
    return text if is_principal(text) else f"User:{text}"


def checked(resource: tuple[Resource, str] | None) -> tuple[Resource, str]:
    if resource is None:
        raise usage("No resource is named.", "Name one: --topic, --group, --transactional-id or --cluster.")
    return resource


def check_operations(resource: Resource, operations: Sequence[Operation]) -> None:
    possible = (Operation.ALL, *OPERATIONS[resource])
    for operation in operations:
        if operation not in possible:
            known = ", ".join(map(word_of, possible))
            raise usage(f"Nobody can {word_of(operation)} a {resource.name.lower()}.", f"There is: {known}.")


@click.group(
    name="acl",
    cls=Group,
    examples="""
moldau acl add alice read --topic orders
moldau acl add alice read --group billing
moldau acl list
moldau acl check alice read --topic orders
moldau acl remove alice --topic orders
""",
)
def command() -> None:
    """Say who may do what, with ACLs."""


prefix_option = click.option("--prefix", is_flag=True, help="All whose names begin like this.")
host_option = click.option(
    "--host", default="*", metavar="ADDRESS", help="Who comes from there.  [default: all]"
)


@command.command(
    examples="""
# To write to a topic, and to read it as a group
moldau acl add producer write --topic orders
moldau acl add billing read --topic orders
moldau acl add billing read --group billing
# All topics whose names begin with logs-
moldau acl add User:collector write create --topic logs- --prefix
# Never from there
moldau acl add '*' all --topic '*' --deny --host 10.0.0.66
"""
)
@click.argument("principal")
@click.argument("operations", nargs=-1, required=True, type=AnOperation(), metavar="OPERATION...")
@resource_options
@prefix_option
@host_option
@click.option("--deny", is_flag=True, help="Forbid it, whatever else allows it.")
@cluster_options
@json_option()
def add(
    principal: str,
    operations: tuple[Operation, ...],
    resource: tuple[Resource, str] | None,
    prefix: bool,
    host: str,
    deny: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Allow, or deny, operations on a resource to a user."""
    type_, name = checked(resource)
    check_operations(type_, operations)
    pattern = Pattern.PREFIXED if prefix else Pattern.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    acls = [
        Acl(type_, pattern, name, Entry(principal_named(principal), host, operation, permission))
        for operation in operations
    ]
    AclClient(Connection(target)).create(acls)
    if as_json:
        print_json([document(acl) for acl in acls])
    else:
        for acl in acls:
            say(f"{acl}: {good('added')}")


@command.command(
    name="list",
    examples="""
moldau acl list
moldau acl list --principal alice
# All that are for a topic, by its name, by a prefix of it or by *
moldau acl list --topic orders
""",
)
@resource_options
@click.option("-p", "--principal", metavar="PRINCIPAL", help="Only those for this user.")
@cluster_options
@json_option()
def list_acls(
    resource: tuple[Resource, str] | None, principal: str | None, target: Target, as_json: bool
) -> None:
    """List ACLs: all, those of a resource, or those for a user."""
    type_, name = resource or (Resource.ANY, None)
    wanted = AclFilter(type_, Pattern.MATCH if name is not None else Pattern.ANY, name)
    if principal is not None:
        wanted = wanted._replace(principal=principal_named(principal))
    found = sorted(AclClient(Connection(target)).described(wanted))
    if as_json:
        print_json([document(acl) for acl in found])
    elif not found:
        note("No ACLs.")
    else:
        columns = [
            Column("resource"),
            Column("name", style="bold"),
            *map(Column, ("principal", "host", "permission")),
        ]
        print_table([*columns, Column("operation")], [row(acl) for acl in found])


@command.command(
    examples="""
moldau acl remove alice --topic orders
moldau acl remove alice write --topic orders
moldau acl remove collector --topic logs- --prefix
"""
)
@click.argument("principal")
@click.argument("operations", nargs=-1, type=AnOperation(), metavar="[OPERATION...]")
@resource_options
@prefix_option
@click.option("--host", default=None, metavar="ADDRESS", help="Only those for who comes from there.")
@cluster_options
@json_option()
def remove(
    principal: str,
    operations: tuple[Operation, ...],
    resource: tuple[Resource, str] | None,
    prefix: bool,
    host: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """Remove ACLs of a resource for a user, of some operations or of all."""
    type_, name = checked(resource)
    pattern = Pattern.PREFIXED if prefix else Pattern.LITERAL
    who = principal_named(principal)
    filters = [
        AclFilter(type_, pattern, name, who, host, operation) for operation in operations or (Operation.ANY,)
    ]
    gone = AclClient(Connection(target)).delete(filters)
    if not gone:
        hint = f"`moldau acl list --principal {who}` shows what there is."
        raise not_found(f"There is no such ACL for {who}.", hint)
    if as_json:
        print_json([document(acl) for acl in gone])
    else:
        for acl in gone:
            say(f"{acl}: {good('removed')}")


@command.command(
    examples="""
moldau acl check alice read --topic orders
moldau acl check alice write --topic orders --host 10.0.0.7
"""
)
@click.argument("principal")
@click.argument("operation", type=AnOperation())
@resource_options
@click.option(
    "--host", default=LOCAL, show_default=True, metavar="ADDRESS", help="Where the user comes from."
)
@cluster_options
@json_option()
def check(
    principal: str,
    operation: Operation,
    resource: tuple[Resource, str] | None,
    host: str,
    target: Target,
    as_json: bool,
) -> None:
    """Say whether a user may do something, and by which rule."""
    type_, name = checked(resource)
    check_operations(type_, [operation])
    who = principal_named(principal)
    found = AclClient(Connection(target)).described(AclFilter(type_, Pattern.MATCH, name))
    decision = decided(found, who, host, operation, type_, name)
    if as_json:
        rule = None if isinstance(decision.rule, Default) else document(decision.rule)
        print_json({"allowed": decision.is_allowed, "rule": rule, "reason": str(decision)})
    else:
        may = good("may") if decision.is_allowed else bold("may not")
        say(f"{who} {may} {word_of(operation)} the {type_.name.lower()} {name}, from {host}: {decision}")
        note(
            f"Decided by {count_of(len(found), 'ACL')} of it. Not known here are the brokers' super.users, who may do"
            " everything, and allow.everyone.if.no.acl.found, which counts where there is no ACL."
        )
    if not decision.is_allowed:
        raise SystemExit(Exit.FAILED)


def decided(
    acls: Sequence[Acl], principal: str, host: str, operation: Operation, resource: Resource, name: str
) -> Decision:
    """As a broker with these ACLs decides, and no super users."""
    by_key: dict[str, dict[str, str]] = {}
    for acl in acls:
        by_key.setdefault(resource_key(ResourcePattern(*acl[:3])), {})[text_of(acl.entry)] = ""
    authorizer = Authorizer()
    whole(authorizer.take_over(by_key))
    return authorizer.decide(principal, host, operation, resource, name)


def row(acl: Acl) -> list[str]:
    shown = f"{acl.name} (prefix)" if acl.pattern is Pattern.PREFIXED else acl.name
    principal, host, operation, permission = acl.entry
    resource = acl.resource.name.lower().replace("_", "-")
    return [resource, shown, principal, host, permission.name.lower(), word_of(operation)]


def document(acl: Acl) -> dict[str, str]:
    principal, host, operation, permission = acl.entry
    return {
        "resource": acl.resource.name.lower(),
        "pattern": acl.pattern.name.lower(),
        "name": acl.name,
        "principal": principal,
        "host": host,
        "operation": operation.name.lower(),
        "permission": permission.name.lower(),
    }
