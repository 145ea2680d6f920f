"""Regular expressions with RE2's syntax, matched in time proportional to the text, whatever the expression.

What clients send is run in the broker, so no expression may hold it up: it is compiled to states (`re2_states`), of
which there is a limited number. Whole texts are matched, as Kafka matches names of topics. Groups capture nothing, and
whether a repetition is greedy makes no difference. What is refused, and with which words, is as in RE2/J, which Kafka
uses; but for a parenthesis too many, which that calls an internal error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from moldau.coordinator.re2_letters import CONTROLS, PERL, POSIX, Test, is_word, unicode_class
from moldau.coordinator.re2_states import Automaton, Beside, Place, States

REPEAT_MAX = 1000
"""RE2's own limit of a count, and of nested counts multiplied."""
STATES_MAX = 12_000
LENGTH_MAX = 10_000
"""So that a list of names of that length has room, and no text costs more than it."""
LETTERS_KEPT = 256
OCTAL, OCTAL_DIGITS_MAX = frozenset("01234567"), 3


class BadExpression(ValueError):
    """Not one of RE2's, in its words."""


class Expression:
    """`matches(text)` tells whether all of the text is one of those that the expression describes."""

    def __init__(self, source: str) -> None:
        if len(source) > LENGTH_MAX:
            raise BadExpression("expression too large")
        states = States()
        try:
            self._automaton = Automaton(states, *_Parser(source, states).parse())
        except RecursionError:
            raise BadExpression("expression nests too deeply") from None

    def matches(self, text: str) -> bool:
        return self._automaton.matches(text)


Part = tuple[int, int]
"""The first and the last state of a part of an expression."""
Node = Callable[[], Part]
"""Makes a part's states anew: a part that is repeated is made several times."""
Bounds = tuple[int, int | None]
"""How often at least and at most; None is: without an end."""


class _Parser:
    def __init__(self, source: str, states: States) -> None:
        self._source = source
        self._position = 0
        self._states = states
        self._ignores_case = False
        self._dot_takes_newline = False
        self._is_multiline = False
        self._names: set[str] = set()

    def parse(self) -> Part:
        node, _ = self._alternatives()
        if self._position < len(self._source):
            raise BadExpression("unexpected )")
        start, end = node()
        last = self._add()
        self._states.targets[end].append(last)
        return start, last

    # ---- structure ------------------------------------------------------------------------------------------

    def _alternatives(self) -> tuple[Node, int]:
        """A node, and how deep its repetitions go when multiplied out."""
        flags = self._ignores_case, self._dot_takes_newline, self._is_multiline
        branches, size = [], 1
        while True:
            node, count = self._sequence()
            branches.append(node)
            size = max(size, count)
            if not self._take("|"):
                break
        self._ignores_case, self._dot_takes_newline, self._is_multiline = flags
        return (branches[0] if len(branches) == 1 else lambda: self._either(branches)), size

    def _sequence(self) -> tuple[Node, int]:
        nodes: list[Node] = []
        sizes: list[int] = []
        was_repeated = False
        while self._position < len(self._source) and self._source[self._position] not in "|)":
            is_brace = self._source[self._position] == "{"
            bounds = self._bounds()
            if bounds is None:
                made, size = self._atom()
                nodes += made  # none where only flags were set: then a repetition is of what came before
                sizes += [size] * len(made)
            elif was_repeated:
                raise BadExpression("invalid nested repetition operator")
            elif not nodes:
                raise BadExpression("missing argument to repetition operator")
            else:
                nodes[-1], sizes[-1] = self._repeated(nodes[-1], sizes[-1], bounds)
            was_repeated = (
                bounds is not None or is_brace
            )  # RE2/J takes a brace for one, though it is a letter
        return (lambda: self._chain(nodes)), max(sizes, default=1)

    def _repeated(self, node: Node, size: int, bounds: Bounds) -> tuple[Node, int]:
        least, most = bounds
        size *= max(least, most or 1, 1)
        if size > REPEAT_MAX:
            raise BadExpression("invalid repeat count")
        return self._repeat(node, least, most), size

    def _bounds(self) -> Bounds | None:
        """Of a repetition at this place; a brace that is no repetition is a letter."""
        bounds: Bounds
        if self._take("*"):
            bounds = 0, None
        elif self._take("+"):
            bounds = 1, None
        elif self._take("?"):
            bounds = 0, 1
        else:
            counted = self._counted()
            if counted is None:
                return None
            bounds = counted
        self._take("?")
        return bounds

    def _counted(self) -> Bounds | None:
        stop = self._source.find("}", self._position)
        if not self._source.startswith("{", self._position) or stop < 0:
            return None
        low, comma, high = self._source[self._position + 1 : stop].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            return None
        least = int(low[:6])
        most = (int(high[:6]) if high else None) if comma else least
        if least > REPEAT_MAX or (most is not None and (most > REPEAT_MAX or most < least)):
            raise BadExpression("invalid repeat count")
        self._position = stop + 1
        return least, most

    # ---- atoms ----------------------------------------------------------------------------------------------

    def _atom(self) -> tuple[list[Node], int]:
        """Mostly one node: flags make none, a quotation one for each letter."""
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            node = self._one_of(self._class())
        elif letter == ".":
            takes_newline = self._dot_takes_newline
            node = self._one_of(lambda one: takes_newline or one != "\n")
        elif letter in "^$":
            node = self._place(letter, self._is_multiline)
        elif letter == "\\":
            return self._escaped(), 1
        else:
            node = self._one_of(self._letters(_equal_to(letter)))
        return [node], 1

    def _group(self) -> tuple[list[Node], int]:
        flags = self._ignores_case, self._dot_takes_newline, self._is_multiline
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                self._name()
            elif not self._flags():
                return [], 1
        node, size = self._alternatives()
        self._ignores_case, self._dot_takes_newline, self._is_multiline = flags
        if not self._take(")"):
            raise BadExpression("missing closing )")
        return [node], size

    def _name(self) -> None:
        name = self._until(">", "invalid named capture")
        if not name or not all(map(is_word, name)):
            raise BadExpression("invalid named capture")
        if name in self._names:
            raise BadExpression("duplicate capture group name")
        self._names.add(name)

    def _flags(self) -> bool:
        """`(?i)` holds for the rest of its group, `(?i:` for a group of its own: then this is True."""
        value, has_any = True, True  # a minus must be of something
        while True:
            letter = self._next("invalid or unsupported Perl syntax")
            if letter == "-" and value:
                value, has_any = False, False
                continue
            if letter in ":)" and has_any:
                return letter == ":"
            if letter == "i":
                self._ignores_case = value
            elif letter == "s":
                self._dot_takes_newline = value
            elif letter == "m":
                self._is_multiline = value
            elif letter != "U":
                raise BadExpression("invalid or unsupported Perl syntax")
            has_any = True

    def _escaped(self) -> list[Node]:
        letter = self._next("trailing backslash at end of expression")
        if letter in "Az":
            return [self._place("^" if letter == "A" else "$", is_multiline=False)]
        if letter in "bB":
            return [self._place(letter, is_multiline=False)]
        if letter == "Q":
            stop = self._source.find("\\E", self._position)
            stop = len(self._source) if stop < 0 else stop
            quoted = self._source[self._position : stop]
            self._position = min(stop + 2, len(self._source))
            return [self._one_of(self._letters(_equal_to(one))) for one in quoted]
        self._position -= 1
        return [self._one_of(self._escaped_test())]

    def _escaped_test(self) -> Test:
        """Of one letter, within a class or outside."""
        letter = self._next("trailing backslash at end of expression")
        if letter.lower() in PERL:
            return self._letters(PERL[letter.lower()], negated=letter.isupper())
        if letter in "pP":
            missing = "invalid character class range"
            name = self._until("}", missing) if self._take("{") else self._next(missing)
            negated = (letter == "P") != name.startswith("^")
            found = unicode_class(name.removeprefix("^"))
            if found is None:
                raise BadExpression("invalid character class range")
            return self._letters(found, negated=negated)
        return self._letters(_equal_to(self._escaped_letter(letter)))

    def _escaped_letter(self, letter: str) -> str:
        if letter in CONTROLS:
            return CONTROLS[letter]
        if letter == "0" or (letter in OCTAL and self._peek() in OCTAL):  # else it would refer to a group
            digits = letter
            while len(digits) < OCTAL_DIGITS_MAX and self._peek() in OCTAL:
                digits += self._next()
            return chr(int(digits, 8))
        if letter == "x":
            digits = (
                self._until("}", "invalid escape sequence")
                if self._take("{")
                else self._next() + self._next()
            )
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise BadExpression("invalid escape sequence") from None
        if letter.isascii() and letter.isalnum():
            raise BadExpression("invalid escape sequence")
        return letter

    def _class(self) -> Test:
        negated = self._take("^")
        tests: list[Test] = []
        is_first = True
        while is_first or not self._take("]"):
            if self._position >= len(self._source):
                raise BadExpression("missing closing ]")
            tests.append(self._class_item())
            is_first = False
        if negated:
            return lambda one: not any(test(one) for test in tests)
        return lambda one: any(test(one) for test in tests)

    def _class_item(self) -> Test:
        if self._source.find(":]", self._position) >= 0 and self._take("[:"):
            name = self._until(":]", "invalid character class range")
            found = POSIX.get(name.removeprefix("^"))
            if found is None:
                raise BadExpression("invalid character class range")
            return self._letters(found, negated=name.startswith("^"))
        letter = self._next("missing closing ]")
        if letter == "\\":
            following = self._source[self._position : self._position + 1]
            if following.lower() in PERL or following in ("p", "P"):
                return self._escaped_test()
            letter = self._escaped_letter(self._next("trailing backslash at end of expression"))
        rest = self._source[self._position : self._position + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return self._letters(_equal_to(letter))
        self._position += 1
        high = self._next("missing closing ]")
        if high == "\\":
            high = self._escaped_letter(self._next("trailing backslash at end of expression"))
        if high < letter:
            raise BadExpression("invalid character class range")
        return self._letters(lambda one: letter <= one <= high)

    # ---- states ---------------------------------------------------------------------------------------------

    def _letters(self, test: Test, *, negated: bool = False) -> Test:
        """In either case where that makes no difference; what is negated is so in both cases."""
        either = test
        if self._ignores_case:

            def either(one: str) -> bool:
                return test(one) or test(one.lower()) or test(one.upper())

        return (lambda one: not either(one)) if negated else either

    def _one_of(self, test: Test) -> Node:
        def make() -> Part:
            state = self._add(test)
            return state, state

        return make

    def _place(self, letter: str, is_multiline: bool) -> Node:
        def holds(before: Beside, after: Beside) -> bool:
            if letter in "^$":
                outside = before if letter == "^" else after
                return outside is Beside.NOTHING or (is_multiline and outside is Beside.NEWLINE)
            is_between = (before is Beside.WORD) != (after is Beside.WORD)
            return is_between == (letter == "b")

        def make() -> Part:
            state = self._add(place=holds)
            return state, state

        return make

    def _chain(self, nodes: list[Node]) -> Part:
        first = last = self._add()
        for node in nodes:
            start, end = node()
            self._states.targets[last].append(start)
            last = end
        return first, last

    def _either(self, nodes: list[Node]) -> Part:
        first, last = self._add(), self._add()
        for node in nodes:
            start, end = node()
            self._states.targets[first].append(start)
            self._states.targets[end].append(last)
        return first, last

    def _repeat(self, node: Node, least: int, most: int | None) -> Node:
        def make() -> Part:
            states = self._states
            first, last = self._chain([node] * least)
            if most is None:
                loop = self._add()
                start, end = node()
                states.targets[last].append(loop)
                states.targets[loop].append(start)
                states.targets[end].append(loop)
                return first, loop
            stop = self._add()
            states.targets[last].append(stop)
            for _ in range(most - least):
                start, end = node()
                states.targets[last].append(start)
                states.targets[end].append(stop)
                last = end
            return first, stop

        return make

    def _add(self, test: Test | None = None, place: Place | None = None) -> int:
        if len(self._states.tests) >= STATES_MAX:
            raise BadExpression("expression too large")
        return self._states.add(test, place)

    # ---- the text -------------------------------------------------------------------------------------------

    def _take(self, text: str) -> bool:
        if self._source.startswith(text, self._position):
            self._position += len(text)
            return True
        return False

    def _next(self, missing: str = "invalid escape sequence") -> str:
        if self._position >= len(self._source):
            raise BadExpression(missing)
        self._position += 1
        return self._source[self._position - 1]

    def _peek(self) -> str:
        """Nothing at the end."""
        return self._source[self._position : self._position + 1]

    def _until(self, end: str, missing: str) -> str:
        stop = self._source.find(end, self._position)
        if stop < 0:
            raise BadExpression(missing)
        found = self._source[self._position : stop]
        self._position = stop + len(end)
        return found


@lru_cache(maxsize=LETTERS_KEPT)
def _equal_to(letter: str) -> Test:
    """The same for the same letter: what leads on by one test is looked at together."""
    return lambda one: one == letter
