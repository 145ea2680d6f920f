"""A picture of what the table `page_views` holds: views per minute by page, and how long pages took to load.

    python plot.py website.png                           # after `moldau pipeline run --once`
    python plot.py website.png --tables spark-warehouse  # after `spark-pipelines run`

It wants matplotlib (`pip install matplotlib`).
"""

import argparse
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from check import HERE, MINUTE, table

PAGES_SHOWN = 5
COLOURS = ("#012a4a", "#2a6f97", "#468faf", "#61a5c2", "#a9d6e5", "#dee2e6")
Row = dict[str, Any]


def minute_of(view: Row) -> datetime:
    time: datetime = view["time"]
    return time.replace(second=0, microsecond=0)


def whole_minutes(views: list[Row]) -> list[datetime]:
    """From the first one on; the last one may still be going on."""
    found = sorted(map(minute_of, views))
    return [found[0] + number * MINUTE for number in range((found[-1] - found[0]) // MINUTE)]


def views_by_page(views: list[Row], minutes: list[datetime]) -> dict[str, list[int]]:
    """Of each minute; the pages that are seen most, and the others together."""
    pages = Counter(view["page"] for view in views)
    shown = [page for page, _ in pages.most_common(PAGES_SHOWN)]
    rest = f"{len(pages) - len(shown)} others"
    counts = Counter((view["page"] if view["page"] in shown else rest, minute_of(view)) for view in views)
    return {page: [counts[page, minute] for minute in minutes] for page in [*shown, rest]}


def load_ms(views: list[Row], minutes: list[datetime]) -> list[list[float]]:
    """Of each minute, what 5, 10, .., 95 % of its views stay below; nothing where there are less than two."""
    found = defaultdict(list)
    for view in views:
        found[minute_of(view)].append(view["load_ms"])
    nothing = [float("nan")] * 19
    return [quantiles(found[minute], n=20) if len(found[minute]) > 1 else nothing for minute in minutes]


def draw(views: list[Row], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # texts stay texts
    from matplotlib import dates
    from matplotlib import pyplot as plt

    minutes = whole_minutes(views)
    by_page = views_by_page(views, minutes)
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9, 5), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    top.stackplot(minutes, *by_page.values(), labels=list(by_page), colors=COLOURS)
    top.set_ylabel("views per minute")
    top.set_title(f"{len(views):,} page views, {minutes[0]:%Y-%m-%d}", loc="left")
    handles, labels = top.get_legend_handles_labels()
    top.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    times = load_ms(views, minutes)
    bottom.plot(minutes, [of_minute[18] for of_minute in times], color=COLOURS[3], label="95 %")
    bottom.plot(minutes, [of_minute[9] for of_minute in times], color=COLOURS[0], label="50 %")
    bottom.set_ylabel("load, ms")
    bottom.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, title="below", alignment="left")
    bottom.set_xlabel("UTC")
    bottom.xaxis.set_major_formatter(dates.DateFormatter("%H:%M", UTC))
    for axes in (top, bottom):
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="A picture of the website's activity.")
    parser.add_argument("file", type=Path, help="the picture to write: a PNG, SVG or PDF by its name")
    parser.add_argument("--tables", default="storage", help="the folder that has them")
    options = parser.parse_args()
    draw(table(HERE / options.tables / "page_views"), options.file)
    print(f"drawn: {options.file}")


if __name__ == "__main__":
    main()
