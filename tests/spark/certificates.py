"""Certificates for one test run, by openssl: an authority, a broker of that name, and a client."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from needs import missing

PASSWORD = "changeit"


@dataclass(frozen=True, slots=True)
class Certificates:
    authority: Path
    key_store: Path
    """Of the broker, for Java."""
    trust_store: Path
    client: Path
    client_key: Path
    stranger: Path
    """An authority that signed nothing here."""


def make_certificates(folder: Path) -> Certificates:
    if shutil.which("openssl") is None:
        missing("There is no `openssl` here, which makes the certificates of this test.")
    _authority(folder, "authority")
    _authority(folder, "stranger")
    _signed(folder, "broker", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _signed(folder, "client", "extendedKeyUsage=clientAuth")
    key_store, trust_store = folder / "broker.p12", folder / "trust.pem"
    _openssl(
        folder,
        *("pkcs12", "-export", "-in", "broker.pem", "-inkey", "broker.key", "-certfile", "authority.pem"),
        *("-out", key_store.name, "-passout", f"pass:{PASSWORD}"),
    )
    shutil.copy(folder / "authority.pem", trust_store)
    return Certificates(
        folder / "authority.pem",
        key_store,
        trust_store,
        folder / "client.pem",
        folder / "client.key",
        folder / "stranger.pem",
    )


def _authority(folder: Path, name: str) -> None:
    _openssl(
        folder,
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
        *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
    )


def _signed(folder: Path, name: str, extension: str) -> None:
    (folder / f"{name}.ext").write_text(extension)
    _openssl(
        folder,
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
    )
    _openssl(
        folder,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "authority.pem", "-CAkey", "authority.key"),
        *("-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
    )


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
