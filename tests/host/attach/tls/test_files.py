"""The files of `tls`: what is wrong with them is said by name."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from berth_host.attach.peer import DialError
from berth_host.attach.tls.files import channel_credentials, own_certificate, trust
from berth_host.attach.tls.names import names_of
from berth_host.config.berth.configuration import TlsFiles
from support.certificates import Authority, PairFiles, pair_files


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def paths(tmp_path: Path, authority: Authority) -> PairFiles:
    return pair_files(tmp_path, "host", authority.issue("berth", dns="host.example"), authority)


def files(paths: PairFiles) -> TlsFiles:
    return TlsFiles(
        ca_file=str(paths.authority),
        cert_file=str(paths.certificate),
        key_file=str(paths.key),
        server_name="",
    )


def test_good_files_make_credentials(paths: PairFiles) -> None:
    assert isinstance(channel_credentials(files(paths)), grpc.ChannelCredentials)
    context = trust(files(paths))
    assert names_of(own_certificate(files(paths), context)) == ("berth", "host.example")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("name", ["authority", "certificate", "key"])
@pytest.mark.parametrize("missing", [True, False])
def test_a_file_that_cannot_be_used_is_named(paths: PairFiles, name: str, missing: bool) -> None:
    path: Path = getattr(paths, name)
    if missing:
        path.unlink()
    else:
        path.write_text("no PEM")
    with pytest.raises(DialError) as caught:
        channel_credentials(files(paths))
    text = str(caught.value)
    assert str(path) in text
    assert ("No such file" if missing else "PEM") in text


def test_the_key_of_another_certificate_is_refused(paths: PairFiles, authority: Authority) -> None:
    paths.key.write_bytes(authority.issue("other").key)
    with pytest.raises(DialError, match="no certificate with its key"):
        channel_credentials(files(paths))


def test_an_expired_certificate_is_refused_with_its_day(paths: PairFiles, authority: Authority) -> None:
    paths.put(authority.issue("berth", expired=True), authority)
    day = datetime.now(UTC).strftime("%Y-%m-")
    with pytest.raises(DialError, match=f"{paths.certificate} expired at {day}.*Z: renew it"):
        channel_credentials(files(paths))
