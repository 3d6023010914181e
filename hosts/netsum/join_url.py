# SPDX-License-Identifier: MIT
"""The join line of an aggregator: one URL that says where it is, how it is known, and which job to join.

::

    export NETSUM_JOIN='netsum://10.1.0.9:8080/?token=TOKEN&cert=sha256:DIGEST'

The path may name the job (``netsum://10.1.0.9:8080/vision?token=...``); without a name it is :data:`DEFAULT_JOB`. The token lets
hosts enroll, and the digest is that of the aggregator's certificate (:mod:`netsum.certificate_pin`).
"""

from __future__ import annotations

import re
import shlex
import urllib.parse
from dataclasses import dataclass
from typing import Final

from netsum.certificate_pin import parse_digest, pinned_url

SCHEME: Final = "netsum"
DEFAULT_JOB: Final = "default"
_EXAMPLE: Final = f"{SCHEME}://HOST:PORT/JOB?token=TOKEN&cert=sha256:DIGEST"
_QUOTING: Final = "copy the whole line, with its quotes: a shell ends a command at an & outside quotes"
_HOST: Final = re.compile("[A-Za-z0-9._-]{1,253}")
_TOKEN: Final = re.compile("[!-~]{1,256}")
_JOB: Final = re.compile("[A-Za-z][A-Za-z0-9_.-]{0,62}")
_FIELDS: Final = ("token", "cert")
JOB_NAME: Final = "a letter, then letters, digits, '_', '.' or '-' (63 at most)"
"""The form of a job's name."""


@dataclass(frozen=True)
class JoinUrl:
    """A parsed join line. ``digest`` is ``sha256:`` and 64 hex digits; ``job`` is None if the line names none.

    Raises ValueError that says which part is wrong. No message has the token in it.
    """

    host: str
    port: int
    token: str
    digest: str
    job: str | None = None

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise ValueError(f"the host is {self.host!r}, must be a name or an IPv4 address")
        if not 0 < self.port < 1 << 16:
            raise ValueError(f"the port is {self.port}, must be 1..65535")
        if not _TOKEN.fullmatch(self.token):
            raise ValueError("the token must have 1 to 256 printable ASCII characters and no space")
        object.__setattr__(self, "digest", parse_digest(self.digest))
        if self.job is not None and not is_job_name(self.job):
            raise ValueError(f"the job is {self.job!r}, must be {JOB_NAME}")

    @classmethod
    def parse(cls, text: str) -> JoinUrl:
        """The inverse of :meth:`format`. Raises ValueError."""
        scheme, separator, rest = text.strip().partition("://")
        if scheme.lower() != SCHEME or not separator:
            raise ValueError(f"it must begin with {SCHEME}://, as in {_EXAMPLE}")
        rest, fragment, _ = rest.partition("#")
        if fragment:
            raise ValueError(f"there must be no # in it; the form is {_EXAMPLE}")
        place, _, query = rest.partition("?")
        authority, _, path = place.partition("/")
        host, port = _endpoint(authority)
        fields = _fields(query)
        if "/" in path.rstrip("/"):
            raise ValueError(f"the path is {path!r}, must be the job's name alone")
        return cls(host, port, fields["token"], fields["cert"], _unquote("job", path.rstrip("/")) or None)

    def format(self) -> str:
        """The URL."""
        token = urllib.parse.quote(self.token, safe="")
        return f"{SCHEME}://{self.host}:{self.port}/{self.job or ''}?token={token}&cert={self.digest}"

    def shell_line(self) -> str:
        """The line for a shell: ``export NETSUM_JOIN='netsum://...'``."""
        return f"export NETSUM_JOIN={shlex.quote(self.format())}"

    @property
    def controller(self) -> str:
        """The controller's URL, with the digest (:func:`netsum.certificate_pin.pinned_url`)."""
        return pinned_url(f"https://{self.host}:{self.port}", self.digest)

    def __repr__(self) -> str:
        """Leave the token out: what is printed ends up in logs."""
        return f"JoinUrl({SCHEME}://{self.host}:{self.port}/{self.job or ''}?token=...&cert={self.digest})"


def is_job_name(text: str) -> bool:
    return _JOB.fullmatch(text) is not None


def is_join_url(text: str) -> bool:
    return text.strip().lower().startswith(f"{SCHEME}:")


def _endpoint(authority: str) -> tuple[str, int]:
    if "@" in authority:
        raise ValueError("there must be no user name before the host")
    host, colon, port = authority.rpartition(":")
    if authority.startswith("[") or ":" in host:
        raise ValueError("the host is an address of IPv6, and netsum is IPv4 only")
    if not colon:
        raise ValueError(f"the port is missing behind the host {authority!r}")
    if not host:
        raise ValueError("the host is missing")
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ValueError(f"the port is {port!r}, must be 1..65535")
    return host, int(port)


def _fields(query: str) -> dict[str, str]:
    """The token and the digest of the query. Not parse_qs, which takes a + for a space and ignores what it cannot read."""
    fields: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in _FIELDS:
            raise ValueError(f"it has a field that is none of {' and '.join(_FIELDS)}")  # not quoted: it may be the token
        if name in fields:
            raise ValueError(f"{name} is there twice")
        fields[name] = _unquote(name, value)
    for name in _FIELDS:
        if not fields.get(name):
            raise ValueError(f"{name} is missing; {_QUOTING}")
    return fields


def _unquote(name: str, text: str) -> str:
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not percent-encoded text") from None
