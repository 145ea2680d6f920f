"""Whether a name that nobody knows is one of ours misspelt, or somebody else's.

A misspelt name is like a key as a whole and word by word: `log.retention.hour`, or `LOG.RETENTION.HOURS`. So is one
that leaves out the last words of a key: `default.replication`. A name that is like one but for a whole word is another
(`zookeeper.session.timeout.ms` beside `broker.session.timeout.ms`), as is a key with more in front of it, which is how
vendors name theirs (`confluent.ssl.truststore.location`).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

LIKENESS_MIN = 0.8
LIKENESS_OF_OTHER_LENGTH_MIN = 0.85
"""Where there are more words, or fewer."""
WORD_LIKENESS_MIN = 0.6
CANDIDATES_MAX = 5


def meant(name: str, known: Iterable[str]) -> str | None:
    """The known name of which this one is a misspelling; None where it is none."""
    name, names = name.lower(), list(known)
    near = get_close_matches(name, names, n=CANDIDATES_MAX, cutoff=LIKENESS_MIN)
    longer = [one for one in names if "." in name and one.startswith(f"{name}.")]
    return next((one for one in near if _is_misspelt(name, one)), None) or min(longer, key=len, default=None)


def _is_misspelt(name: str, known: str) -> bool:
    if name.endswith(f".{known}"):
        return False
    words, others = name.split("."), known.split(".")
    if len(words) != len(others):
        return _likeness(name, known) >= LIKENESS_OF_OTHER_LENGTH_MIN
    return all(map(_are_alike, words, others))


def _are_alike(word: str, other: str) -> bool:
    return sorted(word) == sorted(other) or _likeness(word, other) >= WORD_LIKENESS_MIN


def _likeness(text: str, other: str) -> float:
    return SequenceMatcher(None, text, other).ratio()
