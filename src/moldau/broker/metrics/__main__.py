"""Writes docs/metrics.md to stdout."""

from __future__ import annotations

import sys

from moldau.broker.metrics.page import metrics_page

sys.stdout.write(metrics_page())
