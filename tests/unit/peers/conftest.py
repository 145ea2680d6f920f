"""The engines of the contract suite: the operating system's network, and the simulated one."""

from __future__ import annotations

from contract.conftest import engine

__all__ = ["engine"]
