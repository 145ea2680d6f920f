"""Bugs on purpose."""
from contextlib import contextmanager
PLANTS = {}
@contextmanager
def planted(name):
    yield
