"""Certificates that kubectl accepts are accepted by every Python, and those that it refuses are refused.

Each client context is made strict first, as `ssl.create_default_context` makes it since Python 3.13.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from berth_sdk.wire.verification import verify_as_go
from support.certificates import Authority, Pair
from support.places import ROOT


def handshake(folder: Path, pair: Pair, client: ssl.SSLContext) -> None:
    """Shake hands in memory. Raises ssl.SSLError."""
    path = folder / "pair.pem"
    path.write_bytes(pair.certificate + pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        end = ends.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            ends.append(end)


def strict(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def test_authority_without_a_key_identifier_is_accepted(tmp_path: Path) -> None:
    authority = Authority()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, authority.issue("server"), strict(authority))
    handshake(tmp_path, authority.issue("server"), verify_as_go(strict(authority)))


def test_other_authorities_names_and_times_are_refused_as_before(tmp_path: Path) -> None:
    authority = Authority()
    for pair in (
        Authority().issue("server"),
        authority.issue("server", dns="other.example"),
        authority.issue("server", expired=True),
        authority.issue("server", early=True),
    ):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(tmp_path, pair, verify_as_go(strict(authority)))


def test_every_context_of_the_product_that_may_be_strict_is_verified_as_go_does() -> None:
    made = "ssl.create_default_context("
    places = [
        path
        for part in ("host", "sdk", "plugins")
        for path in sorted((ROOT / part).rglob("*.py"))
        if made in (text := path.read_text()) and "verify_as_go(" not in text
    ]
    assert [str(path.relative_to(ROOT)) for path in places] == []
