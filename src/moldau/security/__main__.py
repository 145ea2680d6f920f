"""Writes docs/security.md, as it comes from stdin, to stdout with the table of now."""

from __future__ import annotations

import sys

from moldau.security.rights_page import with_table

sys.stdout.write(with_table(sys.stdin.read()))
