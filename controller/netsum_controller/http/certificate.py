# SPDX-License-Identifier: MIT
"""The controller's own certificate: self-signed, kept in a file, and known to hosts by its digest.

Certificate and key are in one file, which is written whole or not at all, so that they always belong together. The library
``cryptography`` makes them, since Python's ssl makes none, and the program openssl need not be installed.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from netsum.certificate_pin import certificate_digest

from netsum_controller.errors import InputError

FILE: Final = "self-signed.pem"
_NO_EXPIRY: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""RFC 5280, 4.1.2.5: the certificate has no well-defined expiration date. Hosts compare its digest alone."""
_CLOCK_SKEW: Final = timedelta(days=1)
_PRIVATE: Final = 0o600
_RENEW: Final = "delete the file, start again, and give hosts the new line"
_DAMAGED: Final = f"is damaged: restore it from a backup; or make a new certificate: {_RENEW}"


@dataclass(frozen=True)
class ServerCertificate:
    """A PEM file with a certificate and its key, and the certificate's digest (``sha256:`` and 64 hex digits)."""

    path: Path
    digest: str


def self_signed(directory: Path, addresses: Iterable[str]) -> ServerCertificate:
    """The certificate in this directory. If there is none it is made, for these host names and IPv4 addresses; one that is there
    stays as it is, whatever its addresses, so that join lines stay valid. Raises :class:`InputError`."""
    path = directory / FILE
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(path):
            _create(path, _make(list(dict.fromkeys(addresses))))
        return ServerCertificate(path, _read(path))
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None


def _make(addresses: list[str]) -> bytes:
    """A new key and its certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "netsum controller")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _CLOCK_SKEW)
        .not_valid_after(_NO_EXPIRY)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + certificate.public_bytes(pem)


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.IPv4Address(address))
    except ValueError:
        pass
    try:
        return x509.DNSName(address)
    except ValueError:
        raise InputError(f"{address!r} cannot be in a certificate: write the host's name in ASCII") from None


def _create(path: Path, content: bytes) -> None:
    """Write the file whole, readable by its owner alone, unless another process has made it meanwhile. Raises OSError."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> str:
    """The digest of the certificate in the file. Raises :class:`InputError` if the file is not as :func:`_create` left it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IRWXO:
        raise InputError(
            f"{path}: every user of this machine may read the private key (mode {mode:04o}): make a new certificate ({_RENEW}), "
            f"or, if no other user has read it, chmod {_PRIVATE:o} the file"
        )
    content = path.read_bytes()
    try:
        certificate = x509.load_pem_x509_certificate(content)
        key = serialization.load_pem_private_key(content, None)
        belongs = _public_bytes(key.public_key()) == _public_bytes(certificate.public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(f"{path}: {_DAMAGED}") from None
    if not belongs:
        raise InputError(f"{path}: {_DAMAGED} (the key is not the certificate's)")
    return certificate_digest(certificate.public_bytes(serialization.Encoding.DER))


def _public_bytes(key: Any) -> Any:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
