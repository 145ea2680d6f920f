"""The table of rights and the handlers say the same, both ways."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from moldau import broker
from moldau.broker.handlers import ROUTES
from moldau.security.acls import OPERATIONS, Operation, Resource
from moldau.security.rights import MESSAGES, RIGHTS, Right, right

BROKER = Path(broker.__file__).parent
Asked = tuple[str, str, str]


def declared(path: Path) -> dict[str, Asked]:
    """The rights that a module takes from the table, by the names that it gives them."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Name) and call.func.id == "right":
                api, operation, resource = call.args
                assert isinstance(api, ast.Constant) and isinstance(node.targets[0], ast.Name)
                assert isinstance(operation, ast.Attribute) and isinstance(resource, ast.Attribute)
                found[node.targets[0].id] = (str(api.value), operation.attr, resource.attr)
    return found


def used(path: Path) -> set[str]:
    return {
        node.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


MODULES = sorted(BROKER.rglob("*.py"))


def test_every_served_api_is_in_the_table_and_asks_all_that_the_table_says() -> None:
    asked = {one for path in MODULES for one in declared(path).values()}
    said = {
        (route.name, row.operation.name, row.resource.name)
        for route in ROUTES.values()
        for row in RIGHTS[route.name]
    }
    assert asked == said


@pytest.mark.parametrize("path", [path for path in MODULES if declared(path)], ids=lambda path: path.stem)
def test_what_a_handler_takes_from_the_table_it_asks(path: Path) -> None:
    elsewhere = set().union(*(used(other) for other in MODULES if other != path))
    for name, (api, _, _) in declared(path).items():
        assert name in used(path) or name in elsewhere, f"{api} has {name}, and does not ask it"


def test_no_handler_asks_past_the_table() -> None:
    for path in MODULES:
        text = path.read_text()
        assert "authorizer.allows" not in text or path.stem == "guard", (
            f"{path.stem} asks the authorizer itself"
        )
        assert text.count("= right(") == len(declared(path)), f"{path.stem} takes a right that is no constant"


def test_a_right_that_an_api_does_not_have_cannot_be_taken() -> None:
    assert right("EndTxn", Operation.WRITE, Resource.TRANSACTIONAL_ID).error == 53
    with pytest.raises(KeyError, match="EndTxn does not ask for DELETE on TOPIC"):
        right("EndTxn", Operation.DELETE, Resource.TOPIC)


@pytest.mark.parametrize("row", [row for rows in RIGHTS.values() for row in rows], ids=str)
def test_every_row_is_of_an_operation_that_its_resource_has(row: Right) -> None:
    is_deletion_of_any_topic = row.api == "DeleteTopics" and row.resource is Resource.CLUSTER
    assert row.operation in OPERATIONS[row.resource] or is_deletion_of_any_topic
    assert not row.error or row.message == MESSAGES[row.error]
