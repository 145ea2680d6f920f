"""What a `zookeeper:` URL may say, and what is refused."""

from __future__ import annotations

import pytest

from moldau.store.open import check_store_url
from moldau.store.zookeeper_url import Address, parse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("localhost", Address("localhost:2181", "", "", {})),
        ("a:1,b:2", Address("a:1,b:2", "", "", {})),
        ("a:1,b:2/moldau/prod/", Address("a:1,b:2", "/moldau/prod", "", {})),
        ("[::1]:2181/x", Address("[::1]:2181", "/x", "", {})),
        ("u:p%40ss@a:1", Address("a:1", "", "u:p@ss", {})),
        ("a:1?tls=true", Address("a:1", "", "", {"use_ssl": True})),
        (
            "a:1/x?ca=/etc/ca.pem&verify=false",
            Address("a:1", "/x", "", {"ca": "/etc/ca.pem", "verify_certs": False, "use_ssl": True}),
        ),
    ],
)
def test_a_url_names_servers_a_folder_credentials_and_tls(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("zookeeper:", "neither sqlite:PATH nor zookeeper:"),
        ("sqlite:", "neither sqlite:PATH nor zookeeper:"),
        ("mysql:x", "neither sqlite:PATH nor zookeeper:"),
        ("zookeeper:a:port", "'port' is no port"),
        ("zookeeper:a:1,,b:2", "separated by commas"),
        ("zookeeper:user@a:1", "USER:PASSWORD"),
        ("zookeeper:a:1/x//y", "no path"),
        ("zookeeper:a:1/../x", "no path"),
        ("zookeeper:a:1?color=red", "no option 'color'"),
        ("zookeeper:a:1?tls=maybe", "tls is true or false"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_store_url(url)
