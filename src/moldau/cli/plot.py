"""Plots made of letters: bars, and columns over time. Plain ASCII where the terminal knows no blocks."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = " ▁▂▃▄▅▆▇█"


def knows_blocks(encoding: str | None = None) -> bool:
    try:
        _LEVELS.encode(encoding or sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def bar(share: float, width: int, *, blocks: bool = True) -> str:
    """A horizontal bar of `share` (0 to 1) of `width`; what is not nothing shows at least a trace."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    if not blocks:
        return "#" * math.ceil(eighths / 8)
    full, rest = divmod(eighths, 8)
    return _EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")


def columns(values: Sequence[float], height: int, *, blocks: bool = True) -> list[str]:
    """Columns from zero to the largest value, as lines from top to bottom."""
    top = max(values, default=0)
    if top <= 0:
        return [" " * len(values)] * height
    lines = []
    for row in reversed(range(height)):
        fills = [min(max(value / top * height - row, 0.0), 1.0) for value in values]
        if blocks:
            lines.append("".join(_LEVELS[round(fill * 8)] for fill in fills))
        else:
            lines.append("".join("#" if fill >= 0.5 else " " for fill in fills))
    return lines
