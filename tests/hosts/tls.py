# SPDX-License-Identifier: MIT
"""Self-signed certificates for servers of tests."""

from __future__ import annotations

import ssl
from pathlib import Path

from netsum_controller.http.certificate import self_signed
from netsum_controller.http.server import tls_context


def server_tls(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context with the certificate in this folder, which is made if it is not there, and its digest. The certificate
    is for a name that the server does not have."""
    certificate = self_signed(folder, ["elsewhere.example"])
    return tls_context(certificate.path, certificate.path), certificate.digest
