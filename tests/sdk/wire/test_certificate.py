"""Credentials follow their files, and never those of two moments."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_sdk.wire.certificate import Certificate, CertificateFiles, TlsError
from support.certificates import Authority, PairFiles, pair_files


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def paths(tmp_path: Path, authority: Authority) -> PairFiles:
    return pair_files(tmp_path, "own", authority.issue("own"), authority)


def files(paths: PairFiles) -> CertificateFiles:
    return CertificateFiles(
        cert_file=str(paths.certificate), key_file=str(paths.key), ca_file=str(paths.authority)
    )


def test_a_server_takes_up_a_change_once(paths: PairFiles, authority: Authority) -> None:
    certificate = Certificate(files(paths))
    assert certificate.changed() is None
    paths.put(authority.issue("own"), authority)
    assert certificate.changed() is not None
    assert certificate.changed() is None


def test_a_client_gets_the_same_until_the_files_change(paths: PairFiles, authority: Authority) -> None:
    certificate = Certificate(files(paths))
    first = certificate.client_credentials()
    assert certificate.client_credentials() is first
    paths.put(authority.issue("own"), authority)
    second = certificate.client_credentials()
    assert second is not first
    assert certificate.client_credentials() is second


def test_a_change_that_a_client_saw_first_is_not_lost_to_the_server(
    paths: PairFiles, authority: Authority
) -> None:
    certificate = Certificate(files(paths))
    paths.put(authority.issue("own"), authority)
    certificate.client_credentials()
    assert certificate.changed() is not None


def test_what_became_of_new_files_is_told_once(paths: PairFiles, authority: Authority) -> None:
    told: list[str] = []
    certificate = Certificate(files(paths), told.append)
    first = certificate.client_credentials()
    paths.key.write_text("no PEM")
    assert certificate.client_credentials() is first
    assert certificate.changed() is None
    (problem,) = told
    assert str(paths.key) in problem
    paths.put(authority.issue("own"), authority)
    assert certificate.changed() is not None
    assert told == [problem, ""]


def test_files_of_two_moments_are_not_taken_for_a_pair(
    paths: PairFiles, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is replaced between the reading of the certificate and that of the key."""
    certificate = Certificate(files(paths))
    paths.put(authority.issue("own"), authority)
    newest, swaps = authority.issue("own"), [paths]
    read = Path.read_bytes

    def swap(path: Path) -> bytes:
        content = read(path)
        if path == paths.certificate and swaps:
            swaps.pop().put(newest, authority)
        return content

    monkeypatch.setattr(Path, "read_bytes", swap)
    assert certificate.changed() is not None
    assert swaps == []
    loaded = vars(certificate)["_followed"].value
    assert (loaded.certificate, loaded.key) == newest


def test_files_that_never_stand_still_are_no_certificate(
    paths: PairFiles, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_bytes

    def swap(path: Path) -> bytes:
        content = read(path)
        if path == paths.authority:
            paths.put(authority.issue("own"), authority)
        return content

    monkeypatch.setattr(Path, "read_bytes", swap)
    with pytest.raises(TlsError, match="are being replaced"):
        Certificate(files(paths))
