"""Cipher suites: Java's names are OpenSSL's by OpenSSL's own word, and what is not safe has none."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import pytest

from moldau.security.tls.ciphers import OPENSSL_NAMES, TLS_1_3, ciphers_of
from needs import missing


def test_every_name_is_what_openssl_calls_by_its_registered_name() -> None:
    if shutil.which("openssl") is None:
        missing("There is no `openssl` here, which knows the names of cipher suites.")
    told = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL:@SECLEVEL=0"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    names = {words[0]: words[2] for words in map(str.split, told.stdout.splitlines())}
    assert {java: names.get(java) for java in OPENSSL_NAMES} == OPENSSL_NAMES


@pytest.mark.parametrize("name", sorted(OPENSSL_NAMES.values()))
def test_every_suite_can_be_chosen(name: str) -> None:
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)


def test_names_of_both_versions_are_told_apart_and_others_refused() -> None:
    found = ciphers_of(
        [
            "TLS_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "TLS_RSA_WITH_NULL_SHA256",
            "SSL_RSA_EXPORT_WITH_RC4_40_MD5",
            "TLS_DH_anon_WITH_AES_128_GCM_SHA256",
            "ALL",
            "",
        ]
    )
    assert found.tls_1_3 == ("TLS_AES_256_GCM_SHA384",)
    assert found.tls_1_2 == ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384")
    assert found.unknown == (
        "TLS_RSA_WITH_NULL_SHA256",
        "SSL_RSA_EXPORT_WITH_RC4_40_MD5",
        "TLS_DH_anon_WITH_AES_128_GCM_SHA256",
        "ALL",
    )
    assert set(TLS_1_3).isdisjoint(OPENSSL_NAMES)
