"""docs/metrics.md, made from the table: `python -m moldau.broker.metrics`."""

from __future__ import annotations

from moldau.base.limits import METRIC_GROUP_LETTERS_MAX, METRIC_GROUP_TOPICS_MAX, METRIC_TOPICS_MAX
from moldau.broker.metrics.counters import DURATION_BOUNDS_S
from moldau.broker.metrics.table import SECTIONS, Family

HEAD = f"""# Metrics

Made by `make docs` from the table that `/metrics` is made from; do not edit. [monitoring.md](monitoring.md) says how to
scrape it, and has a dashboard and alerts.

- Every broker tells of itself: what it has served, leads, holds and coordinates. `sum` adds brokers up.
- Counters begin at 0 when a broker starts, and those of a topic when the topic comes to it. All else is looked up when
  `/metrics` is asked for, in slices with clients served between; who asks again at once may get the same answer.
- At most {METRIC_TOPICS_MAX:,} topics, and {METRIC_GROUP_TOPICS_MAX:,} pairs of group and topic, have figures
  of their own: the first that come, as long as they are there. The others are added up under `other`, as is what has
  that very name, and groups whose ids have more than {METRIC_GROUP_LETTERS_MAX} letters.
- Labels: `api` is Kafka's name of the request, `error` its name of the error code, `folder` one of `log.dirs`.
- Buckets of `moldau_request_duration_seconds`, in seconds:
  {", ".join(f"{bound:g}" for bound in DURATION_BOUNDS_S)}.
"""


def metrics_page() -> str:
    parts = [HEAD]
    for title, families in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n")
        parts += map(_row, families)
    return "".join(parts)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |\n"
