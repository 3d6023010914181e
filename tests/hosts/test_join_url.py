# SPDX-License-Identifier: MIT
"""Join lines: parsed, formatted, and refused with the part that is wrong."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.join_url import JoinUrl, is_join_url

DIGEST = "sha256:" + "0123456789abcdef" * 4
GOOD = f"netsum://10.1.0.9:8080/vision?token=se%2Fcret&cert={DIGEST}"

NAMES = st.from_regex("[A-Za-z][A-Za-z0-9_.-]{0,62}", fullmatch=True)
HOSTS = st.one_of(st.ip_addresses(v=4).map(str), st.from_regex("[a-z0-9][a-z0-9-]{0,20}([.][a-z0-9]{1,9}){0,3}", fullmatch=True))
LINES = st.builds(
    JoinUrl,
    host=HOSTS,
    port=st.integers(1, 65535),
    token=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=256),
    digest=st.binary(min_size=32, max_size=32).map(lambda raw: f"sha256:{raw.hex()}"),
    job=st.none() | NAMES,
)


@given(LINES)
def test_a_line_survives_its_text(line: JoinUrl) -> None:
    assert JoinUrl.parse(line.format()) == line
    assert is_join_url(line.format())
    export, word = shlex.split(line.shell_line())  # as a shell reads it
    assert (export, word) == ("export", f"NETSUM_JOIN={line.format()}")


def test_the_parts() -> None:
    line = JoinUrl.parse(GOOD)
    assert (line.host, line.port, line.token, line.digest, line.job) == ("10.1.0.9", 8080, "se/cret", DIGEST, "vision")
    assert line.controller == f"https://10.1.0.9:8080#cert={DIGEST}"
    assert "se/cret" not in repr(line)
    assert "se%2Fcret" not in repr(line)


@pytest.mark.parametrize("form", ["netsum://agg.example:1?{}", "netsum://agg.example:1/?{}", " NETSUM://agg.example:1/?{}\n"])
def test_forms_without_a_job(form: str) -> None:
    text = form.format(f"cert={DIGEST.upper()}&token=a+b")
    assert JoinUrl.parse(text) == JoinUrl("agg.example", 1, "a+b", DIGEST)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("netsum://", "https://", "must begin with netsum://"),
        ("netsum://", "netsum:", "must begin with netsum://"),
        ("10.1.0.9:8080", "10.1.0.9", "port is missing behind the host '10.1.0.9'"),
        ("10.1.0.9:8080", ":8080", "host is missing"),
        ("10.1.0.9:8080", "", "port is missing"),
        ("10.1.0.9:8080", "10.1.0.9:", "port is ''"),
        ("10.1.0.9:8080", "10.1.0.9:http", "port is 'http'"),
        ("10.1.0.9:8080", "10.1.0.9:0", "port is 0, must be 1..65535"),
        ("10.1.0.9:8080", "10.1.0.9:65536", "port is 65536"),
        ("10.1.0.9:8080", "10.1.0.9:²", "port is '²'"),
        ("10.1.0.9:8080", "[fd00::9]:8080", "IPv6, and netsum is IPv4 only"),
        ("10.1.0.9:8080", "fd00::9:8080", "IPv6, and netsum is IPv4 only"),
        ("10.1.0.9:8080", "me@10.1.0.9:8080", "no user name"),
        ("10.1.0.9:8080", "10.1 .0.9:8080", "host is '10.1 .0.9'"),
        ("/vision", "/9vision", "job is '9vision', must be a letter"),
        ("/vision", "/vision/2", "path is 'vision/2', must be the job's name alone"),
        ("/vision", "/visi%2Fon", "job is 'visi/on'"),
        ("/vision", "/%ff", "job is not percent-encoded text"),
        ("token=se%2Fcret&", "", "token is missing; copy the whole line, with its quotes"),
        ("token=se%2Fcret", "token=", "token is missing"),
        ("token=se%2Fcret", "token=a%20b", "token must have 1 to 256 printable ASCII characters"),
        ("token=se%2Fcret", "token=" + "a" * 257, "token must have 1 to 256"),
        ("token=se%2Fcret", "token=a&token=b", "token is there twice"),
        ("token=", "tokn=", "it has a field that is none of token and cert"),
        ("token=se%2Fcret", "se%2Fcret", "it has a field that is none of token and cert"),
        (f"&cert={DIGEST}", "", "cert is missing; copy the whole line, with its quotes: a shell ends a command at an &"),
        (DIGEST, "sha256:abc", "has 3 characters after sha256:, must have 64 hex digits"),
        (DIGEST, DIGEST[:-1] + "g", "must have 64 hex digits"),
        (DIGEST, DIGEST.removeprefix("sha256:"), "must begin with sha256:"),
        (DIGEST, DIGEST.replace("sha256", "sha1"), "must begin with sha256:"),
        (DIGEST, DIGEST + "#job", "no # in it"),
    ],
)
def test_what_is_wrong_is_named_and_the_token_is_not(old: str, new: str, words: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(ValueError) as caught:
        JoinUrl.parse(text)
    assert words in str(caught.value)
    assert "cret" not in str(caught.value)


@given(st.text(max_size=80) | st.text(max_size=80).map("netsum://{}".format) | st.text(max_size=40).map((GOOD + "{}").format))
def test_any_other_text_is_an_error_or_a_line(text: str) -> None:
    try:
        line = JoinUrl.parse(text)
    except ValueError:
        return
    assert JoinUrl.parse(line.format()) == line
