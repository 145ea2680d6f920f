"""Writes docs/protocol-support.md to stdout."""

from __future__ import annotations

import sys

from moldau.broker.handlers import ROUTES
from moldau.broker.protocol_support import protocol_support

sys.stdout.write(protocol_support(ROUTES))
