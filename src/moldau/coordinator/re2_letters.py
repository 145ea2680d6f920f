"""The classes of letters in RE2's expressions: Perl's, POSIX's, and Unicode's by name.

Of Unicode's scripts it is known which letters of ASCII they have, which is all that a topic's name can have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from unicodedata import category

Test = Callable[[str], bool]


def is_word(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter == "_")


def _within(letters: str) -> Test:
    return lambda one: one in letters


PERL: dict[str, Test] = {"d": _within("0123456789"), "s": _within("\t\n\f\r "), "w": is_word}
CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
POSIX: dict[str, Test] = {
    "alnum": lambda one: one.isascii() and one.isalnum(),
    "alpha": lambda one: one.isascii() and one.isalpha(),
    "ascii": str.isascii,
    "blank": _within("\t "),
    "cntrl": lambda one: one < " " or one == "\x7f",
    "digit": PERL["d"],
    "graph": lambda one: "!" <= one <= "~",
    "lower": lambda one: "a" <= one <= "z",
    "print": lambda one: " " <= one <= "~",
    "punct": lambda one: "!" <= one <= "~" and not one.isalnum(),
    "space": _within("\t\n\v\f\r "),
    "upper": lambda one: "A" <= one <= "Z",
    "word": is_word,
    "xdigit": _within("0123456789abcdefABCDEF"),
}

_CATEGORIES = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
_SCRIPTS = """
Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal
Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic
Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited
Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin
Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham
Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic
Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil
Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi
"""
CATEGORIES, SCRIPTS = frozenset(_CATEGORIES.split()), frozenset(_SCRIPTS.split())


def unicode_class(name: str) -> Test | None:
    """Of a category or a script; None for a name that is neither."""
    if name == "Any":
        return lambda _one: True
    if name in CATEGORIES:
        return lambda one: category(one).startswith(name)
    return partial(_is_of_script, name) if name in SCRIPTS else None


def _is_of_script(name: str, letter: str) -> bool:
    return letter.isascii() and name == ("Latin" if letter.isalpha() else "Common")
