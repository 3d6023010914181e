# SPDX-License-Identifier: MIT
"""Certificates for the tests: an authority's, a server's, a client's, and an outsider's, which another authority signed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Certificates:
    """A folder with ca.pem, and NAME.pem and NAME.key for server, client and outsider (of another authority)."""

    folder: Path

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def tls(self, who: str = "client", authority: str = "ca") -> dict[str, str]:
        """The topology's ``tls`` of a controller that is ``who`` and trusts ``authority``."""
        return {"ca": self.path(f"{authority}.pem"), "cert": self.path(f"{who}.pem"), "key": self.path(f"{who}.key")}

    def tls_with_server(self) -> dict[str, str]:
        """The client's ``tls`` with what its switch is started with."""
        return {**self.tls(), "server_cert": self.path("server.pem"), "server_key": self.path("server.key")}


def _openssl(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def make_certificates(folder: Path) -> Certificates:
    """Made with openssl, good for two days, for localhost and 127.0.0.1."""
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for authority in ("ca", "other"):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{authority}.key")
        _openssl("req", "-x509", *key, "-out", f"{authority}.pem", "-subj", f"/CN={authority}", "-days", "2", cwd=folder)
    for name, authority in (("server", "ca"), ("client", "ca"), ("outsider", "other")):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
        _openssl("req", *key, "-out", f"{name}.csr", "-subj", f"/CN={name}", cwd=folder)
        signer = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-extfile", "names")
        _openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-out", f"{name}.pem", "-days", "2", cwd=folder)
    return Certificates(folder)
