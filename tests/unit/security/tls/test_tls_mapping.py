"""`ssl.principal.mapping.rules`, by the examples of Kafka's documentation and of KIP-371."""

from __future__ import annotations

import time

import pytest

from moldau.config.key import ConfigError
from moldau.security.tls.mapping import RULES_MAX, PrincipalMapping

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("CN=Duke,OU=JavaSoft,O=Sun Microsystems", "duke"),
        ("cn=duke.of.java,OU=JavaSoft,O=Sun Microsystems", "duke.of.java"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_documented_rules_give_the_documented_names(subject: str, name: str) -> None:
    assert PrincipalMapping(DOCUMENTED).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a", None),
        ("RULE:^CN=(.*?)$/$1/", "O=a", None),
        (" RULE:^CN=(.*?)$/$1/ , DEFAULT ", "CN=a", "a"),
        ("RULE:^CN=(.*?)$/$1/U", "CN=Duke", "DUKE"),
        (r"RULE:^CN=(.*?)\/(.*?)$/$1\/$2/", "CN=a/b", "a/b"),
        (r"RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=duke,O=x", "duke"),
        ("RULE:^CN=(.*)$/$1@$4/", "CN=a", "a@$4"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*)$/$0/", "CN=a", "CN=a"),
        (r"RULE:^CN=(.*)$/\$1/", "CN=a", "$1"),
        ("RULE:CN=a/user/", "CN=ab", None),
        ("RULE:.*/x/", "CN=a", "xx"),  # Java's replaceAll finds the empty end, too
        ("RULE:^CN=(.*?),(OU=none)?.*$/$1-$2/", "CN=a,O=b", "a-"),
    ],
)
def test_rules_are_read_and_applied_as_kafka_does(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalMapping(rules).name_of(subject) == name


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULTS",
        "RULE:^CN=(.*?)$",
        "RULE:^CN=(.*?)$/$1",
        "RULE:^CN=(.*?)$/$1/LU",
        "RULE:^CN=(.*?)$/$1/X",
        "RULE:^CN=(.*?$/$1/",
        "RULE:^(?=CN)(.*)$/$1/",
        r"RULE:^CN=(.*),OU=\1$/$1/",
        "RULE:^CN=.*$/$1/",
        "RULE:^CN=(.*)$/$a/",
        "RULE:^CN=(.*)$/a$/",
        "DEFAULT," * (RULES_MAX + 1),
    ],
)
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)


def test_no_name_makes_a_rule_slow_or_is_too_long_for_one() -> None:
    mapping = PrincipalMapping("RULE:^(CN=)?((a+)+,?)+b$/$1/")
    start_s = time.perf_counter()
    assert mapping.name_of("CN=" + "a" * 4000) is None
    assert time.perf_counter() - start_s < 1.0
    assert PrincipalMapping("DEFAULT").name_of("CN=" + "a" * 5000) is None
