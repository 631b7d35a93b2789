"""A connection over TLS ends with its certificates, and is made anew with those that replace them."""

from __future__ import annotations

from pathlib import Path

from berth_host.attach.tls.renewal import Renewal
from berth_host.config.berth.configuration import TlsFiles
from structlog.testing import capture_logs
from support.certificates import Authority, pair_files


def test_replaced_files_are_a_reason_once_they_are_good(tmp_path: Path) -> None:
    authority = Authority()
    pair = pair_files(tmp_path, "host", authority.issue("h"), authority)
    files = TlsFiles(
        ca_file=str(pair.authority),
        cert_file=str(pair.certificate),
        key_file=str(pair.key),
        server_name="",
    )
    renewal = Renewal(files)
    assert renewal.due() == ""
    with capture_logs() as logs:
        pair.certificate.write_bytes(authority.issue("h").certificate)  # its key is not there yet
        assert [renewal.due(), renewal.due()] == ["", ""]
        pair.key.unlink()
        assert renewal.due() == ""
    assert [line["event"] for line in logs] == ["attachment.not_renewed"] * 2  # once for each reason
    pair.put(authority.issue("h"), authority)
    assert "were replaced" in renewal.due()


def test_the_first_certificate_that_expires_is_a_reason(tmp_path: Path) -> None:
    now_s = 1000.0
    renewal = Renewal(TlsFiles(ca_file="", cert_file="", key_file="", server_name=""), lambda: now_s)
    renewal.ends_s = 2000.0
    assert renewal.due() == ""
    now_s = 2000.0
    assert "has expired" in renewal.due()
