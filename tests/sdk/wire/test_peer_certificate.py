"""The end of a certificate is read as cryptography reads it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from berth_sdk.wire.peer_certificate import has_ended, not_after_s
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.certificates import Authority


def certificate(end: datetime, names: int = 1) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n" * 60) for _ in range(names)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1970, 1, 1, tzinfo=UTC))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


@pytest.mark.parametrize(
    "end",
    [
        datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2050, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("names", [1, 3, 40])
def test_end_is_that_of_the_certificate(end: datetime, names: int) -> None:
    assert not_after_s(certificate(end, names)) == end.timestamp()


def test_certificate_has_ended_at_its_end_and_without_one_nothing_has() -> None:
    pem = certificate(datetime(2030, 1, 1, tzinfo=UTC))
    end_s = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    properties = {"x509_pem_cert": [pem]}
    assert [has_ended(properties, end_s + later) for later in (-1, 0, 1)] == [False, True, True]
    assert not has_ended({}, end_s)
    assert not has_ended({"x509_pem_cert": [Authority().issue("a").certificate]}, time.time())


@pytest.mark.parametrize("size", [0, 1, 2, 30, 60])
def test_what_is_no_certificate_is_named(size: int) -> None:
    pem = certificate(datetime(2030, 1, 1, tzinfo=UTC))
    lines = pem.split(b"\n")
    cut = b"\n".join([lines[0], lines[1][:size], lines[-2], b""])
    with pytest.raises(ValueError, match=r".+"):
        not_after_s(cut)
