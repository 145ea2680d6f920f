"""Subjects of certificates as text. The expected texts were printed by Java's `X500Principal.getName()`."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from certificates import Authority
from moldau.security.tls.names import rfc_2253, subject_of

CN, ORG, UNIT, COUNTRY = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
)
Part = tuple[ObjectIdentifier, str]


def text_of(*parts: Part | list[Part]) -> str:
    """Of a name with these parts, in the order in which a certificate has them."""
    rdns = [
        x509.RelativeDistinguishedName(
            [x509.NameAttribute(*one) for one in (part if isinstance(part, list) else [part])]
        )
        for part in parts
    ]
    return rfc_2253(x509.Name(rdns).public_bytes())


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([(COUNTRY, "US"), (ORG, "Acme"), (UNIT, "Sales"), (CN, "alice")], "CN=alice,OU=Sales,O=Acme,C=US"),
        ([(NameOID.STATE_OR_PROVINCE_NAME, "MD"), (NameOID.LOCALITY_NAME, "X")], "L=X,ST=MD"),
        ([(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u1")], "UID=u1,DC=org"),
        ([(NameOID.STREET_ADDRESS, "Main 1"), (CN, "a")], "CN=a,STREET=Main 1"),
        ([[(CN, "a"), (NameOID.USER_ID, "b")]], "CN=a+UID=b"),
        ([(CN, 'a,b+c"d\\e<f>g;h=i#j')], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        ([(CN, " a ")], "CN=\\ a\\ "),
        ([(CN, "  ")], "CN=\\ \\ "),
        ([(CN, "größe 日本")], "CN=größe 日本"),
        ([(NameOID.EMAIL_ADDRESS, "a@b.c")], "1.2.840.113549.1.9.1=#1605614062" + "2e63"),
        ([(NameOID.SERIAL_NUMBER, "7"), (CN, "x")], "CN=x,2.5.4.5=#130137"),
        ([(NameOID.TITLE, "Dr")], "2.5.4.12=#0c024472"),
        ([], ""),
    ],
)
def test_a_subject_is_printed_as_java_prints_it(parts: list[Part | list[Part]], text: str) -> None:
    assert text_of(*parts) == text


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (_ASN1Type.PrintableString, "plain", "CN=plain"),
        (_ASN1Type.IA5String, "plain", "CN=plain"),
        (_ASN1Type.T61String, "plain", "CN=plain"),
        (_ASN1Type.UniversalString, "a", "CN=#1c0400000061"),
        (_ASN1Type.BMPString, "a+", "CN=\\00a\\00\\+"),
    ],
)
def test_strings_of_other_kinds_are_printed_as_java_prints_them(
    kind: _ASN1Type, value: str, text: str
) -> None:
    assert rfc_2253(x509.Name([x509.NameAttribute(CN, value, _type=kind)]).public_bytes()) == text


def test_the_subject_of_a_certificate_is_found() -> None:
    issued = Authority().issue("CN=client,O=Acme")  # RFC 4514, so O is the first in the certificate
    assert subject_of(issued.certificate.public_bytes(Encoding.DER)) == "CN=client,O=Acme"


@pytest.mark.parametrize(
    "data", [b"", b"0", b"0\x05abc", b"1\x00", b"0\x021\x00x", bytes(20), b"\x30\x84\xff\xff\xff\xff"]
)
def test_what_is_no_name_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"name|certificate"):
        rfc_2253(data)
