"""The table of APIs, which is there before their handlers are, says what these declare."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from moldau.broker import handlers
from moldau.broker.dispatch import HANDLERS, Route
from moldau.broker.handlers import ROUTES

MODULES = sorted(path.stem for path in Path(handlers.__file__).parent.glob("*.py") if path.stem != "__init__")


def test_every_handler_is_in_the_table_once_and_in_order() -> None:
    assert sorted(route.module for route in ROUTES.values()) == MODULES
    assert list(ROUTES) == sorted(ROUTES)


@pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.module)
def test_the_table_says_what_the_handler_declares(route: Route) -> None:
    module = import_module(f"{HANDLERS}.{route.module}")
    assert (route.api_key, (route.min_version, route.max_version)) == (module.API_KEY, module.VERSIONS)
    assert route.advertised_min_version == getattr(module, "ADVERTISED_MIN_VERSION", module.VERSIONS[0])
    assert route.is_internal is getattr(module, "IS_INTERNAL", False)
    assert route.name == getattr(module, "NAME", route.name)


@pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.module)
def test_a_handler_is_had_when_it_is_asked_for(route: Route) -> None:
    module = import_module(f"{HANDLERS}.{route.module}")
    fresh = Route(route.module, route.api_key, (0, 0), name=route.name)
    with pytest.raises(AttributeError):
        _ = fresh.absent
    assert fresh.is_forwarded is getattr(module, "is_forwarded", None)
    assert (fresh.handle, fresh.serve) == (getattr(module, "handle", None), getattr(module, "serve", None))
    assert fresh.handle or fresh.serve
