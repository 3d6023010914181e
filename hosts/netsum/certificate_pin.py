# SPDX-License-Identifier: MIT
"""Trust in one certificate: a server is known by the SHA-256 digest of its certificate, whatever its name and its signer.

A controller's URL may end with the digest of its certificate, ``https://10.1.0.9:8080#cert=sha256:...``. Clients then need no
authority (``NETSUM_CA``) and no file.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from typing import Final

from netsum.errors import JoinError

_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")
_FRAGMENT: Final = "cert="


def certificate_digest(der: bytes) -> str:
    """The digest of a certificate (DER): ``sha256:`` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def parse_digest(text: str) -> str:
    """The digest in lower case. Raises ValueError that says what is wrong."""
    digest = text.lower()
    if not digest.startswith("sha256:"):
        raise ValueError(f"the certificate's digest is {text!r}, must begin with sha256:")
    if not _DIGEST.fullmatch(digest):
        given = digest.removeprefix("sha256:")
        raise ValueError(f"the certificate's digest has {len(given)} characters after sha256:, must have 64 hex digits")
    return digest


def pinned_url(address: str, digest: str) -> str:
    """The URL of the server at ``address`` (``https://...``) that has the certificate with this digest."""
    return f"{address}#{_FRAGMENT}{digest}"


def split_pin(url: str) -> tuple[str, str | None]:
    """A controller's URL without its fragment, and the digest that the fragment has; None if there is no fragment. Raises
    JoinError."""
    address, hash_sign, fragment = url.partition("#")
    if not hash_sign:
        return url, None
    if not fragment.startswith(_FRAGMENT):
        raise JoinError(f"the controller is {url!r}: behind # there must be {_FRAGMENT}sha256:... and nothing else")
    if not address.startswith("https://"):
        raise JoinError(f"the controller is {url!r}: a certificate needs https://")
    try:
        return address, parse_digest(fragment.removeprefix(_FRAGMENT))
    except ValueError as error:
        raise JoinError(f"the controller is {url!r}: {error}") from None


class PinError(OSError):
    """The server did not show the certificate with the expected digest. Nothing was sent to it."""


def pinned_context() -> ssl.SSLContext:
    """TLS without authorities and names: the caller checks the certificate with :func:`check_certificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def check_certificate(sock: ssl.SSLSocket, server: str, digest: str) -> None:
    """Raise :class:`PinError` unless the peer's certificate has this digest. Call it after the handshake, in which the peer has
    proved that the certificate is its own."""
    found = certificate_digest(sock.getpeercert(binary_form=True) or b"")
    if found != digest:
        raise PinError(
            f"the server at {server} has the certificate {found}, and {digest} is expected: either another server answers "
            "there, or the controller has made a new certificate, and hosts need the line that it prints now"
        )
