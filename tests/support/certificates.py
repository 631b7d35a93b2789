"""Certificates for tests: an authority, and what it signs, as PEM."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
DAY_S: Final = _DAY.total_seconds()
"""The life of a certificate that says nothing else, in seconds."""
_LIVES: Final = {
    (False, False): (-_HOUR, _DAY),
    (True, False): (-_HOUR, timedelta(minutes=-1)),
    (False, True): (_HOUR, _DAY),
}
"""From when to when it is valid, seen from now, by (expired, early)."""


class Pair(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates. Its own lacks what strict checking asks for, as those of many clusters do."""

    def __init__(self, name: str = "test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        name: str,
        *organisations: str,
        dns: str = "",
        expired: bool = False,
        early: bool = False,
    ) -> Pair:
        """Return a certificate for 127.0.0.1, or for `dns`, or for a user called `name`, of `organisations`.

        `expired`: a minute ago; `early`: it is valid in an hour; the others expire in a day.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        alternative: x509.GeneralName = (
            x509.DNSName(dns) if dns else x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        )
        certificate = (
            _builder(_name(name, *organisations), self._name, key, _LIVES[expired, early])
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _pair(certificate, key)


def self_signed(name: str, *, dns: str) -> Pair:
    """Return a certificate that no authority signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(name), _name(name), key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _name(common_name: str, *organisations: str) -> x509.Name:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    names += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organisations]
    return x509.Name(names)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    lives: tuple[timedelta, timedelta] = _LIVES[False, False],
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + lives[0])
        .not_valid_after(now + lives[1])
    )


class PairFiles(NamedTuple):
    """Paths of PEM files: a certificate, its key, and the authority of the other side."""

    certificate: Path
    key: Path
    authority: Path

    def put(self, pair: Pair, authority: Authority) -> None:
        """Replace what lies there, file by file, each in one step."""
        for path, content in zip(self, (*pair, authority.pem), strict=True):
            new = path.with_suffix(".new")
            new.write_bytes(content)
            new.rename(path)


def pair_files(folder: Path, name: str, pair: Pair, authority: Authority) -> PairFiles:
    """Return the files of one side. `authority`: what it trusts."""
    files = PairFiles(*(folder / f"{name}.{end}" for end in ("crt", "key", "ca")))
    files.put(pair, authority)
    return files
