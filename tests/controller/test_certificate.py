# SPDX-License-Identifier: MIT
"""The controller's own certificate: made once, reused, and never replaced behind the hosts' backs."""

from __future__ import annotations

import os
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from netsum.certificate_pin import certificate_digest
from netsum.controller_client import ControllerClient
from netsum_controller import Controller, JobSpec
from netsum_controller.cli import cli
from netsum_controller.errors import InputError
from netsum_controller.http.certificate import FILE, self_signed
from netsum_controller.http.server import tls_context

from tests.controller.conftest import Run
from tests.controller.members import TOKEN
from tests.controller.test_cli import JOB, serving
from tests.threads import PATIENCE, returned

ADDRESSES = ["10.0.0.100", "aggregator.example", "127.0.0.1", "127.0.0.1"]


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_it_is_made_and_reused(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "tls"
    made = self_signed(folder, ADDRESSES)
    assert made.path == folder / FILE
    assert os.listdir(folder) == [FILE], "nothing is left of its making"
    assert made.digest == certificate_digest(ssl.PEM_cert_to_DER_cert(_certificate(made.path)))
    tls_context(made.path, made.path)
    content = made.path.read_bytes()
    assert self_signed(folder, ["192.0.2.1"]) == made
    assert made.path.read_bytes() == content
    assert self_signed(tmp_path / "other", ADDRESSES).digest != made.digest


def _certificate(path: Path) -> str:
    text = path.read_text("ascii")
    return text[text.index("-----BEGIN CERTIFICATE") :]


def test_what_is_in_it(tmp_path: Path) -> None:
    certificate = read(self_signed(tmp_path, ADDRESSES).path)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.100", "127.0.0.1"]
    assert names.get_values_for_type(x509.DNSName) == ["aggregator.example"]
    assert certificate.subject == certificate.issuer
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", tmp_path / FILE], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "notAfter=Dec 31 23:59:59 9999 GMT"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_owner_may_read_it(tmp_path: Path, umask: int) -> None:
    """A process of its own, since the umask is a process's."""
    code = "import os, pathlib, sys; from netsum_controller.http.certificate import self_signed; os.umask(int(sys.argv[1]))\n"
    code += "self_signed(pathlib.Path(sys.argv[2]), ['127.0.0.1'])"
    subprocess.run([sys.executable, "-c", code, str(umask), tmp_path / "tls"], check=True)
    assert stat.S_IMODE((tmp_path / "tls" / FILE).stat().st_mode) == 0o600
    assert not (tmp_path / "tls").stat().st_mode & 0o077


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = self_signed(tmp_path, ADDRESSES).path
    path.chmod(0o644)
    with pytest.raises(InputError, match=r"every user of this machine may read the private key \(mode 0644\).* chmod 600"):
        self_signed(tmp_path, ADDRESSES)
    path.chmod(0o660)  # as Kubernetes has files in a volume with fsGroup
    self_signed(tmp_path, ADDRESSES)


def test_starts_at_the_same_time_have_one_certificate(tmp_path: Path) -> None:
    made = returned([lambda: self_signed(tmp_path, ADDRESSES)] * 8)
    assert len(set(made)) == 1
    assert os.listdir(tmp_path) == [FILE]


def _swap(content: bytes, folder: Path) -> bytes:
    """The key of one certificate with another certificate."""
    other = self_signed(folder / "other", ADDRESSES).path.read_bytes()
    mark = b"-----BEGIN CERTIFICATE"
    return content[: content.index(mark)] + other[other.index(mark) :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda *_: b"",
        lambda content, _: content[: len(content) // 3],
        lambda content, _: content[: 2 * len(content) // 3],
        lambda content, _: content[:-40],
        lambda content, _: content.replace(b"BEGIN CERTIFICATE", b"BEGIN CERTIFICATES"),
        lambda content, _: content[content.index(b"-----BEGIN CERTIFICATE") :],
        lambda content, _: content[:60] + bytes(20) + content[80:],
        lambda *_: b"\xff" * 900,
        _swap,
    ],
    ids=["empty", "half-key", "half", "no-end", "no-certificate", "no-key", "zeros", "noise", "anothers"],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do(damage: Callable[[bytes, Path], bytes], tmp_path: Path) -> None:
    path = self_signed(tmp_path, ADDRESSES).path
    damaged = damage(path.read_bytes(), tmp_path)
    path.write_bytes(damaged)
    with pytest.raises(InputError) as caught:
        self_signed(tmp_path, ADDRESSES)
    text = str(caught.value)
    assert text.startswith(
        f"{path}: is damaged: restore it from a backup; or make a new certificate: delete the file, start again"
    )
    assert len(text.splitlines()) == 1
    assert path.read_bytes() == damaged
    path.unlink()
    self_signed(tmp_path, ADDRESSES)


@pytest.mark.parametrize("place", ["file", "dangling"])
def test_a_place_where_it_cannot_be(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "tls"
    if place == "file":
        folder.write_text("")
    else:
        folder.mkdir()
        (folder / FILE).symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=rf"tls(/{FILE})?: (File exists|No such file)"):
        self_signed(folder, ADDRESSES)


def test_a_name_that_no_certificate_can_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'büro' cannot be in a certificate"):
        self_signed(tmp_path, ["büro"])
    assert os.listdir(tmp_path) == []


def test_members_get_the_digest_with_the_url(controller: Controller, spec: JobSpec, tmp_path: Path) -> None:
    controller.create_job(spec)
    certificate = self_signed(tmp_path / "tls", ["127.0.0.1"])
    url = controller.serve(tls=(certificate.path, certificate.path), pin=certificate.digest)
    assert url.startswith("https://127.0.0.1:")
    assert url.endswith(f"#cert={certificate.digest}")
    descriptor = ControllerClient("resnet", 0, TOKEN, url).join(None, time.monotonic() + PATIENCE)
    assert descriptor.controller == url  # so a descriptor file, too, says whom to trust
    client = ControllerClient.of_descriptor(descriptor, TOKEN)
    assert client is not None
    assert [each["host"] for each in client.members(time.monotonic() + PATIENCE)] == ["h1", "h2", "h4"]


def test_an_authoritys_way_works_with_it_too(
    controller: Controller, spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For what knows no digest: the certificate vouches for itself, and has the addresses."""
    controller.create_job(spec)
    certificate = self_signed(tmp_path / "tls", ["127.0.0.1"])
    public = tmp_path / "public.pem"
    public.write_text(_certificate(certificate.path))
    url = controller.serve(tls=(certificate.path, certificate.path))
    monkeypatch.setenv("NETSUM_CA", str(public))
    assert ControllerClient("resnet", 0, TOKEN, url).join(None, time.monotonic() + PATIENCE).controller == url


def test_serve_prints_the_digest_and_keeps_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "resnet.yaml").write_text(JOB)
    run("switch", "push")
    created = run("job", "create", "resnet.yaml").out
    token = created.split("token ")[1].strip()
    digests = []
    for _ in range(2):
        with serving("--tls-self-signed", str(tmp_path / "tls"), "--no-watch") as (_log, line):
            url = line.split(" at ")[1].strip()
            client = ControllerClient("resnet", 0, token, url)
            assert client.members(time.monotonic() + PATIENCE)
        digests.append(url.partition("#cert=")[2])
    assert digests[0] == digests[1] == self_signed(tmp_path / "tls", []).digest
    names = read(tmp_path / "tls" / FILE).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_serve_takes_one_certificate() -> None:
    done = CliRunner().invoke(cli, ["serve", "--tls-cert", "a", "--tls-key", "b", "--tls-self-signed", "c"])
    assert done.exit_code == 2
    assert "--tls-cert and --tls-self-signed exclude each other" in done.output
