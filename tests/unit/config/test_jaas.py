"""JAAS lines, with the words of Java's StreamTokenizer and the errors of Kafka's JaasConfig."""

from __future__ import annotations

import pytest

from moldau.config.jaas import PLAIN_MODULE, parse_jaas
from moldau.config.key import ConfigError

LINES = {
    'M required a="b";': {"a": "b"},
    "M required a='b c' d=e ;": {"a": "b c", "d": "e"},
    "M REQUIRED;": {},
    'M required a="x;y=z" b="";': {"a": "x;y=z", "b": ""},
    r'M required a="q\"q\\q\'q\n";': {"a": "q\"q\\q'q\n"},
    r'M required a="\101\0\477";': {"a": "A\0" + "'7"},
    'M required // a="no"\n a="yes";': {"a": "yes"},
    'M required /* a="no" ; */ a="yes"; // more': {"a": "yes"},
    'M\n\trequired\r\n a = "b"\n;': {"a": "b"},
    'M required a="ümlaut";': {"a": "ümlaut"},
    'M required "a b"="c";': {"a b": "c"},
    'M required a="http://x/y";': {"a": "http://x/y"},
    'M sufficient a="b" a="c";': {"a": "c"},
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_its_options(line: str) -> None:
    module = parse_jaas(line)
    assert (module.name, module.options) == ("M", LINES[line])


BAD = {
    "": "Login module not specified",
    "// nothing": "Login module not specified",
    "M": "control flag not specified",
    "M ;": "control flag is not available",
    "M maybe;": "Invalid login module control flag",
    "M required": "not terminated by semi-colon",
    'M required a="b"': "not terminated by semi-colon",
    "M required a;": "Value not specified",
    "M required a=": "Value not specified",
    "M required a=;": "Value not specified",
    'M required a="secret; b="c";': "Value not specified",
    'M required a="b"; M required;': "contains 2 login modules",
}


@pytest.mark.parametrize("line", BAD)
def test_a_line_that_is_misspelt_is_refused_without_saying_what_is_in_it(line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_jaas(line)
    assert BAD[line] in str(refused.value)
    assert "secret" not in str(refused.value)


def test_options_are_not_shown() -> None:
    assert "secret" not in repr(parse_jaas(f'{PLAIN_MODULE} required password="secret";'))
