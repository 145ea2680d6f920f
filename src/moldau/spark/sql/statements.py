"""The statements that are ours, beside Spark's: about topics, about what runs, and about saving it.

    SHOW TOPICS | TABLES [LIKE 'pattern']     the cluster's topics
    DESCRIBE name                             a topic's columns
    SHOW STREAMS                              the streaming tables that run
    STOP name                                 ends one
    DROP TABLE name                           forgets a declaration; the topic stays
    SAVE PIPELINE 'folder'                    makes a project of the streaming tables
    HELP, QUIT

All else is Spark's parser's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from moldau.spark.sql.texts import Token, tokens


@dataclass(frozen=True, slots=True)
class ShowTopics:
    pattern: str | None = None

    def takes(self, topic: str) -> bool:
        """Hidden topics, as those of groups and transactions, are shown when the pattern begins like them."""
        if self.pattern is None:
            return not topic.startswith("__")
        return fnmatchcase(topic, self.pattern.replace("%", "*"))


@dataclass(frozen=True, slots=True)
class ShowStreams:
    pass


@dataclass(frozen=True, slots=True)
class Describe:
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    name: str


@dataclass(frozen=True, slots=True)
class Drop:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Save:
    folder: str


@dataclass(frozen=True, slots=True)
class Help:
    pass


@dataclass(frozen=True, slots=True)
class Quit:
    pass


Own = ShowTopics | ShowStreams | Describe | Stop | Drop | Save | Help | Quit


class Misspelt(Exception):
    """One of our statements, not quite: how it is written."""


def own_statement(text: str) -> Own | None:
    """The statement, where it is one of ours."""
    found = [token for token in tokens(text) if token.kind not in ("comment", "end")]
    words = [token.text.upper() if token.kind == "word" else "" for token in found]
    match words:
        case ["HELP"]:
            return Help()
        case ["QUIT" | "EXIT"]:
            return Quit()
        case ["SHOW", "STREAMS"]:
            return ShowStreams()
        case ["SHOW", "TOPICS" | "TABLES", *rest]:
            return show_topics(found[2:], rest)
        case ["STOP", *_]:
            return Stop(named(found[1:], "STOP name"))
        case ["SAVE", *_]:
            return save(found, words)
        case ["DROP", "TABLE", "IF", "EXISTS", *_]:
            return Drop(named(found[4:], "DROP TABLE IF EXISTS name"), True)
        case ["DROP", "TABLE", *_]:
            return Drop(named(found[2:], "DROP TABLE name"))
        case [
            "DESCRIBE" | "DESC",
            "FUNCTION" | "DATABASE" | "SCHEMA" | "CATALOG" | "QUERY" | "FORMATTED",
            _,
            *_,
        ]:
            return None
        case ["DESCRIBE" | "DESC", "TABLE", _, *_]:
            return Describe(named(found[2:], "DESCRIBE name"))
        case ["DESCRIBE" | "DESC", *_]:
            return Describe(named(found[1:], "DESCRIBE name"))
    return None


def show_topics(found: list[Token], words: list[str]) -> ShowTopics:
    if not found:
        return ShowTopics()
    if found[-1].kind == "string" and words[:-1] in ([], ["LIKE"]):
        return ShowTopics(unquoted(found[-1].text))
    raise Misspelt("Write SHOW TOPICS, or SHOW TOPICS LIKE 'orders*'.")


def save(found: list[Token], words: list[str]) -> Save:
    if words[1:-1] == ["PIPELINE"] and found[-1].kind == "string":
        return Save(unquoted(found[-1].text))
    raise Misspelt("Write SAVE PIPELINE 'folder'.")


def named(found: list[Token], form: str) -> str:
    """A name, whole in back-quotes or of words and dots."""
    names, dots = found[::2], found[1::2]
    if (
        len(found) % 2 == 0
        or any(one.kind not in ("word", "quoted") for one in names)
        or any(one.text != "." for one in dots)
    ):
        raise Misspelt(f"Write {form}; a name with a dash or a dot in it stands in `back-quotes`.")
    return ".".join(one.text for one in names)


def unquoted(text: str) -> str:
    return text[1:-1].replace("\\'", "'").replace('\\"', '"').replace("\\\\", "\\")
