"""ACLs over confluent-kafka's admin client, as the values that the rest of Moldau has for them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from moldau.cli.client import Connection
from moldau.cli.errors import CliError
from moldau.security.acls import Acl, AclFilter, Entry, Operation, Pattern, Permission, Resource

if TYPE_CHECKING:
    from confluent_kafka.admin import AclBinding, AclBindingFilter

NAMES = {Resource.CLUSTER: "BROKER"}
"""Of resources, where librdkafka has another than Kafka. The numbers are the same."""


NOTHING = AclFilter(Resource.GROUP, Pattern.LITERAL, "")
"""There are no ACLs of a resource without a name."""


class AclClient:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def described(self, wanted: AclFilter) -> list[Acl]:
        found: Any = self._result(self._connection.admin.describe_acls(_filter(wanted)))
        if not found:
            self.delete(
                [NOTHING]
            )  # librdkafka does not tell why there are none: this is refused for the same reason
        return [_acl(one) for one in found]

    def create(self, acls: Sequence[Acl]) -> None:
        futures = self._connection.admin.create_acls([_binding(acl) for acl in acls])
        for future in futures.values():
            self._result(future)

    def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        futures = self._connection.admin.delete_acls([_filter(wanted) for wanted in filters])
        return [_acl(one) for future in futures.values() for one in self._result(future)]

    def _result(self, future: Future[Any]) -> Any:
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result(timeout=self._connection.target.timeout_s)
        except KafkaException as error:
            refusal = error.args[0]
            if refusal.code() == KafkaError.SECURITY_DISABLED:
                raise CliError(
                    "The cluster has no ACLs: its brokers have no authorizer, and everyone may do everything.",
                    "Set authorizer.class.name and super.users on all of them.",
                ) from error
            if refusal.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                raise CliError(
                    "You may not do this: it takes the right to describe the cluster, or to alter it.",
                    "One of the brokers' super.users may: say who you are with -X.",
                ) from error
            raise self._connection.explain(refusal) from error
        except TimeoutError as error:
            raise self._connection.silent() from error


def _kinds(resource: Resource, pattern: Pattern) -> tuple[Any, Any]:
    from confluent_kafka.admin import ResourcePatternType, ResourceType

    return ResourceType[NAMES.get(resource, resource.name)], ResourcePatternType[pattern.name]


def _binding(acl: Acl) -> AclBinding:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType

    principal, host, operation, permission = acl.entry
    type_, pattern = _kinds(acl.resource, acl.pattern)
    return AclBinding(
        type_,
        acl.name,
        pattern,
        principal,
        host,
        AclOperation[operation.name],
        AclPermissionType[permission.name],
    )


def _filter(wanted: AclFilter) -> AclBindingFilter:
    from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType

    type_, pattern = _kinds(wanted.resource, wanted.pattern)
    return AclBindingFilter(
        type_,
        wanted.name,
        pattern,
        wanted.principal,
        wanted.host,
        AclOperation[wanted.operation.name],
        AclPermissionType[wanted.permission.name],
    )


def _acl(found: Any) -> Acl:
    entry = Entry(
        found.principal,
        found.host,
        Operation(found.operation.value),
        Permission(found.permission_type.value),
    )
    pattern = Pattern[found.resource_pattern_type.name]
    return Acl(Resource(found.restype.value), pattern, found.name, entry)
