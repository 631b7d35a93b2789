"""The secure port's certificate, and the check of client certificates.

Used by `EndpointServer` at its start and periodically, so that replaced files take effect without a restart.
Source: `k8s.io/apiserver/pkg/server/options/serving.go` (MaybeDefaultWithSelfSignedCerts) and
`server/dynamiccertificates`, v1.36.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
from pathlib import Path
from typing import Final, overload

from berth_sdk.wire.followed_files import Stamp, TlsError, stamp_of
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth_host.config.errors import nearest
from berth_host.endpoints.access import Certificate
from berth_host.endpoints.options import ServingOptions
from berth_host.errors.endpoints import EndpointError
from berth_host.model.in_memory import load_pair
from berth_host.model.user import ClientTrust

PAIR_NAME: Final = "kube-scheduler"
VALID_DAYS: Final = 365
_USUAL_BITS: Final = 2048
_CLOCK_SKEW: Final = datetime.timedelta(hours=1)
_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""OpenSSL's cipher names by IANA name. As in kube-scheduler, the ciphers of TLS 1.3 cannot be chosen."""


class ServingCertificate:
    """The server's certificate and key. Raises EndpointError if they cannot be read or made."""

    def __init__(self, options: ServingOptions) -> None:
        self._options = options
        self._files = _files(options)
        self._pair = self_signed() if self._files is None else None
        self._seen: Stamp = ()
        self._seen = self._stamp()

    def has_changed(self) -> bool:
        """Return True if the files changed since the last call, or since the start."""
        stamp = self._stamp()
        changed, self._seen = stamp != self._seen, stamp
        return changed

    def context(self, trust: ClientTrust) -> ssl.SSLContext:
        """Return the context for new handshakes.

        Clients need no certificate, but a certificate that they send must be valid. Raises EndpointError.
        """
        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[options.min_tls]
        context.set_alpn_protocols(["http/1.1"])
        # A client could ask for one handshake after the other without a turn.
        context.options |= ssl.OP_NO_RENEGOTIATION
        if options.ciphers:
            context.set_ciphers(":".join(_CIPHERS.get(name, name) for name in options.ciphers))
        try:
            self._load(context)
        except (OSError, ssl.SSLError) as err:
            files = "" if self._files is None else f" ({self._files[0]}, {self._files[1]})"
            raise EndpointError(
                f"the certificate of the secure port cannot be used{files}: {err}; it needs a certificate and"
                " its key, in PEM and not encrypted"
            ) from err
        authorities = "\n".join(pem for pem in (trust.client_ca, trust.proxy_ca) if pem)
        if authorities:
            try:
                context.load_verify_locations(cadata=authorities)
            except ssl.SSLError as err:
                raise EndpointError(f"the CA of client certificates cannot be used: {err}") from err
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    @property
    def has_large_key(self) -> bool:
        """True for an RSA key of more than 2048 bits, whose handshakes cost five times as much."""
        try:
            key = x509.load_pem_x509_certificate(self.pair()[0]).public_key()
        except (EndpointError, ValueError):
            return False
        return isinstance(key, rsa.RSAPublicKey) and key.key_size > _USUAL_BITS

    def stamp(self) -> Stamp:
        """Return what differs once the files have changed; empty for a pair in memory."""
        return self._stamp()

    def pair(self) -> tuple[bytes, bytes]:
        """Return the certificate with its chain and its key, in PEM. Raises EndpointError."""
        self.context(ClientTrust())  # checks that they belong together
        if self._pair is not None:
            return self._pair
        assert self._files is not None  # there is a pair or there are files
        try:
            return self._files[0].read_bytes(), self._files[1].read_bytes()
        except OSError as err:
            raise EndpointError(f"the certificate of the query service cannot be read: {err}") from err

    def _load(self, context: ssl.SSLContext) -> None:
        if self._files is not None:
            # An encrypted key is refused; without this argument OpenSSL would ask for a password at the
            # terminal.
            context.load_cert_chain(*self._files, password="")
            return
        if self._pair is None:
            raise EndpointError("there is no certificate")
        load_pair(context, *self._pair)

    def _stamp(self) -> Stamp:
        try:
            return () if self._files is None else stamp_of(self._files)
        except TlsError:
            return self._seen  # The files are being replaced.


def check_options(options: ServingOptions) -> None:
    """Raise EndpointError for an unknown TLS version or cipher, an incomplete pair of files, or restrictions
    that the query service cannot keep.
    """
    if options.min_tls not in _VERSIONS:
        known = ", ".join(name for name in _VERSIONS if name)
        raise EndpointError(
            f"unknown tls version {options.min_tls!r}: use one of {known} as --tls-min-version"
        )
    for name in options.ciphers:
        if name not in _CIPHERS:
            raise EndpointError(
                f"Cipher suite {name} not supported or doesn't exist: give --tls-cipher-suites names such as"
                f" {nearest(name, _CIPHERS) or next(iter(_CIPHERS))}, or leave it out"
            )
    if (options.cert_file is None) != (options.key_file is None):
        raise EndpointError("--tls-cert-file and --tls-private-key-file are given together or not at all")
    _check_query(options)


def _check_query(options: ServingOptions) -> None:
    """Raise EndpointError for restrictions of TLS that the query service's port cannot keep."""
    given = [
        flag
        for flag, is_given in (
            ("--tls-min-version=VersionTLS13", options.min_tls == "VersionTLS13"),
            ("--tls-cipher-suites", bool(options.ciphers)),
        )
        if is_given
    ]
    if options.query_port and given:
        raise EndpointError(
            f"--query-secure-port does not keep {' and '.join(given)}, as gRPC chooses them itself (TLS 1.2"
            " and newer): leave one of the two out"
        )


def _files(options: ServingOptions) -> tuple[Path, Path] | None:
    """Return the certificate's and the key's file; None for a pair in memory.

    Makes a missing pair in `cert_dir`. Raises EndpointError.
    """
    if options.cert_file is not None and options.key_file is not None:
        return options.cert_file, options.key_file
    if options.cert_dir is None:
        return None
    certificate, key = options.cert_dir / f"{PAIR_NAME}.crt", options.cert_dir / f"{PAIR_NAME}.key"
    if not (certificate.exists() and key.exists()):
        try:
            options.cert_dir.mkdir(parents=True, exist_ok=True)
            made, made_key = self_signed()
            # Nobody else may have opened the file before the key is in it.
            key.unlink(missing_ok=True)
            descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(made_key)
            certificate.write_bytes(made)
        except OSError as err:
            raise EndpointError(f"no certificate can be written to {options.cert_dir}: {err}") from err
    return certificate, key


def self_signed() -> tuple[bytes, bytes]:
    """Return a new self-signed certificate of this host and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    host = socket.gethostname()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{host}@berth"[-64:])])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    if host != "localhost" and host.isascii():
        names.append(x509.DNSName(host))
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


class ClientAuthorities:
    """The trusted CAs of client certificates, to find the CA of an accepted certificate."""

    def __init__(self, trust: ClientTrust | None = None) -> None:
        """Read the CAs; None: no CA. Raises ValueError for what is no certificate in PEM."""
        trust = trust or ClientTrust()
        self._clients = _authorities(trust.client_ca)
        self._proxies = _authorities(trust.proxy_ca)

    @overload
    def certificate(self, der: bytes) -> Certificate: ...

    @overload
    def certificate(self, der: bytes, *, strictly: bool) -> Certificate | None: ...

    def certificate(self, der: bytes, *, strictly: bool = False) -> Certificate | None:
        """Return the certificate's names, CA and end.

        If only one kind of CA is trusted, chains with intermediate CAs are accepted too. `strictly`: the
        handshake was made with other CAs. Returns None then, unless one of these CAs has issued it.
        """
        leaf = x509.load_der_x509_certificate(der)
        by_client = any(_issued(leaf, one) for one in self._clients)
        by_proxy = any(_issued(leaf, one) for one in self._proxies)
        if not by_client and not by_proxy:
            if strictly:
                return None
            by_client, by_proxy = not self._proxies, not self._clients
        return Certificate(
            next(iter(_values(leaf, NameOID.COMMON_NAME)), ""),
            tuple(_values(leaf, NameOID.ORGANIZATION_NAME)),
            by_client,
            by_proxy,
            leaf.not_valid_after_utc.timestamp(),
        )


def _authorities(pem: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode()) if pem else []


def _issued(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _values(leaf: x509.Certificate, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(one.value) for one in leaf.subject.get_attributes_for_oid(kind)]
