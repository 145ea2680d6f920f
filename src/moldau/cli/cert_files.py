"""The files of `moldau certs`: an authority in a folder, and the stores of those whom it has signed for."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError, file_error, not_found, usage
from moldau.cli.private_files import PRIVATE_FILE, PUBLIC_FILE, make_private_folder, write_file

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from moldau.security.certificates import Contents, Pair, PrivateKey, Role

FOLDER = "certs"
AUTHORITY_CERTIFICATE = "ca.crt"
AUTHORITY_KEY = "ca.key"
AUTHORITY_NAME = "Moldau authority"
AUTHORITY_DAYS = 3650
DAYS = 825
PASSWORD_BYTES_MIN = 6  # keytool opens nothing with less


def make_authority(
    folder: str,
    name: str = AUTHORITY_NAME,
    *,
    days: int = AUTHORITY_DAYS,
    key_type: str = "ecdsa",
    replace: bool = False,
) -> Pair:
    from moldau.security.certificates import (
        CertificateError,
        KeyKind,
        certificate_pem,
        key_pem,
        new_authority,
        new_key,
    )

    try:
        made = new_authority(name, new_key(KeyKind(key_type)), current_time(), new_serial(), days=days)
    except CertificateError as error:
        raise usage(str(error)) from error
    certificate = certificate_pem(made.certificate)
    write_all(
        folder,
        {AUTHORITY_KEY: (key_pem(made.key), PRIVATE_FILE), AUTHORITY_CERTIFICATE: (certificate, PUBLIC_FILE)},
        replace=replace,
    )
    return made


def make_store(
    folder: str,
    signer: Pair,
    role: Role,
    name: str,
    hosts: Sequence[str],
    *,
    days: int = DAYS,
    key_type: str = "ecdsa",
    password: bytes | None = None,
    store_password: bytes | None = None,
    replace: bool = False,
) -> tuple[Certificate, list[str]]:
    """Key and chain of a broker or a client; the certificate, and the files that were written."""
    from moldau.security import certificates

    try:
        made = certificates.issue(
            signer,
            role,
            name,
            certificates.new_key(certificates.KeyKind(key_type)),
            current_time(),
            new_serial(),
            hosts=hosts,
            days=days,
        )
    except certificates.CertificateError as error:
        raise usage(str(error)) from error
    stem = file_name(name)
    written = {f"{stem}.pem": (certificates.store_pem(made, signer.certificate, password), PRIVATE_FILE)}
    if store_password is not None:
        data = certificates.store_pkcs12(made, signer.certificate, name, store_password)
        written[f"{stem}.p12"] = (data, PRIVATE_FILE)
    write_all(folder, written, replace=replace)
    return made.certificate, [os.path.join(folder, one) for one in written]


def authority_of(folder: str, certificate_name: str = AUTHORITY_CERTIFICATE) -> Pair:
    """The authority in a folder, with its key."""
    from moldau.security.certificates import Pair

    path = os.path.join(folder, certificate_name)
    if not os.path.exists(path):
        raise not_found(
            f"There is no authority in {folder}.",
            f"Make one first: `moldau certs authority{in_folder(folder)}`.",
        )
    found = contents_of(path, None)
    key = contents_of(os.path.join(folder, AUTHORITY_KEY), None).key
    if not found.certificates or key is None or not belong(key, found.certificates[0]):
        raise CliError(f"{AUTHORITY_KEY} in {folder} is not the key of {certificate_name}.")
    return Pair(found.certificates[0], key)


def belong(key: PrivateKey, certificate: Certificate) -> bool:
    return bool(key.public_key() == certificate.public_key())


def write_all(folder: str, contents: dict[str, tuple[bytes, int]], *, replace: bool) -> None:
    """All of these files; none where one of them is there and not to be replaced."""
    there = [name for name in contents if os.path.lexists(os.path.join(folder, name))]
    if there and not replace:
        raise CliError(
            f"There is a file {os.path.join(folder, there[0])} already.",
            "--force replaces it; `moldau certs renew` makes it good for longer, with the same key.",
        )
    try:
        make_private_folder(folder)
        for name, (data, mode) in contents.items():
            write_file(os.path.join(folder, name), data, mode, replace=replace)
    except OSError as error:
        raise CliError(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}.") from error


def contents_of(path: str, password: bytes | None) -> Contents:
    from moldau.security.certificates import CertificateError, read

    try:
        with open(path, "rb") as file:
            return read(file.read(), password)
    except OSError as error:
        raise file_error(error, path) from error
    except CertificateError as error:
        raise CliError(f"{path} cannot be read. {error}") from error


def password_of(path: str | None) -> bytes | None:
    """The first line of a file."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            password = file.readline().rstrip(b"\r\n")
    except OSError as error:
        raise file_error(error, path) from error
    if len(password) < PASSWORD_BYTES_MIN:
        raise usage(f"The password in {path} has less than {PASSWORD_BYTES_MIN} characters.")
    return password


def current_time() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def new_serial() -> int:
    from moldau.security.certificates import SERIAL_BYTES, serial_of

    return serial_of(os.urandom(SERIAL_BYTES))


def file_name(name: str) -> str:
    """A name that is no path."""
    return re.sub(r"[^\w.@-]+", "_", name).lstrip(".") or "_"


def in_folder(folder: str) -> str:
    return "" if folder == FOLDER else f" --dir {folder}"
