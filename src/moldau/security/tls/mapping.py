"""`ssl.principal.mapping.rules`: a principal's name from a certificate's subject, by Kafka's rules (KIP-371).

A list of `RULE:pattern/replacement/[LU]` and `DEFAULT`; the first whose pattern is the whole name gives the principal.
As in Kafka's SslPrincipalMapper, the replacement is made wherever the pattern is found, `$1` is a group, and a group
that there is none of stands as it was written. Patterns are RE2's: what a client sends cannot make one slow, and what
Java has beyond that (looking ahead and behind, back references) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from moldau.config.key import ConfigError

KEY = "ssl.principal.mapping.rules"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*+)/((?:\\.|[^\\/])*+)/([LU]?)|)\s*(?:,\s*|$)")
RULES_MAX = 100
NAME_LETTERS_MAX = 4096


class Rule(NamedTuple):
    """One rule; `pattern` is None for DEFAULT."""

    pattern: Any
    replacement: Sequence[str | int]
    """Texts and the numbers of groups."""
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self._replaced(name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _replaced(self, name: str) -> str:
        """Java's `replaceAll`: wherever the pattern is found, also empty behind the last place."""
        parts: list[str] = []
        position = copied = 0
        while position <= len(name) and (found := self.pattern.search(name, position)) is not None:
            start, stop = found.span()
            parts.append(name[copied:start])
            parts += [part if isinstance(part, str) else found.group(part) or "" for part in self.replacement]
            copied = stop
            position = stop + (start == stop)
        parts.append(name[copied:])
        return "".join(parts)


class PrincipalMapping:
    """ConfigError where the rules are not rules."""

    def __init__(self, text: str) -> None:
        self.rules = _rules(text)

    def name_of(self, subject: str) -> str | None:
        """None where no rule applies: whoever it is gets in nowhere."""
        if len(subject) > NAME_LETTERS_MAX:
            return None
        return next((name for rule in self.rules if (name := rule.apply(subject)) is not None), None)


def _rules(text: str) -> list[Rule]:
    rules: list[Rule] = []
    text, position = text.strip(), 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise ConfigError(f"{KEY}: '{text[position : position + 80]}' does not begin with a rule")
        position = found.end()
        is_default, pattern, replacement, case = found.groups()
        if is_default:
            rules.append(Rule(None, (), ""))
        elif pattern is not None:
            rules.append(_rule(pattern, replacement, case))
        if len(rules) > RULES_MAX:
            raise ConfigError(f"{KEY}: there are more than {RULES_MAX} rules")
    return rules


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error
        raise ConfigError(f"{KEY}: the pattern '{pattern}' is none of RE2's: {reason}") from None
    return Rule(compiled, _replacement(replacement, compiled.groups), case)


def _replacement(text: str, groups: int) -> list[str | int]:
    """Java's: `$12` is group 12 where there are as many, else group 1 and a 2; `\\$` is a dollar."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\" and position < len(text):
            parts.append(text[position])
            position += 1
        elif letter == "$" and (number := re.match(r"[0-9]+", text[position:])) is not None:
            digits = number[0]
            while len(digits) > 1 and int(digits) > groups:
                digits = digits[:-1]
            if int(digits) <= groups:
                parts.append(int(digits))
                position += len(digits)
            elif groups:
                parts.append("$")
            else:
                raise ConfigError(f"{KEY}: '{text}' names a group, and its pattern has none")
        elif letter == "$":
            raise ConfigError(f"{KEY}: a dollar that is one is written \\$, unlike in '{text}'")
        else:
            parts.append(letter)
    return parts
