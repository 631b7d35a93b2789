"""Mutual TLS to plugins on other machines. Imported late, because the import takes 0.1 s.

The files of a plugin's `tls` are read again for each attachment, as they are replaced while hosts run. A host
that cannot use them never falls back to plaintext: `DialError` names the wrong file, and the attachment
retries. `behind_tls` makes a handshake of its own, with the same files as gRPC's connection a moment later.
TLS checks certificates only when a connection begins, so a `Renewal` decides when a connection must be made
again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import grpc
from berth_sdk.clocks import wall_s
from berth_sdk.rfc3339 import format_time
from berth_sdk.wire.followed_files import Stamp, TlsError, stamp_of
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from berth_host.attach.peer import DialError, Peer, PeerRefusedError
from berth_host.config.berth.configuration import TlsFiles
from berth_host.log import get_logger
from berth_host.model.paths import why_unread


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """Return the credentials of one channel. Raises DialError."""
    own_certificate(files, trust(files))
    authority, certificate, key = map(_read, (files.ca_file, files.cert_file, files.key_file))
    return grpc.ssl_channel_credentials(authority, key, certificate)


def trust(files: TlsFiles) -> ssl.SSLContext:
    """Return a client context that trusts only the plugin's CA. Raises DialError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(files.ca_file)
    except ssl.SSLError as err:
        raise DialError(f"caFile {files.ca_file} has no CA certificate in PEM: {err.reason}") from err
    except OSError as err:
        raise DialError(f"caFile {files.ca_file} cannot be read: {err.strerror}") from err
    return context


def own_certificate(files: TlsFiles, context: ssl.SSLContext) -> x509.Certificate:
    """Load the host's certificate into the context and return it. Raises DialError."""
    _read(files.key_file)
    try:
        # An encrypted key is refused; without this argument OpenSSL would ask for a password at the
        # terminal.
        context.load_cert_chain(files.cert_file, files.key_file, password="")
        found = x509.load_pem_x509_certificate(_read(files.cert_file))
    except (OSError, ValueError) as err:
        why = getattr(err, "reason", None) or getattr(err, "strerror", None) or "the key cannot be read"
        raise DialError(
            f"certFile {files.cert_file} and keyFile {files.key_file} are no certificate with its key, in PEM"
            f" and not encrypted: {why}"
        ) from err
    now, begin, end = datetime.now(UTC), found.not_valid_before_utc, found.not_valid_after_utc
    if end < now:
        raise DialError(f"the host's certificate in {files.cert_file} expired at {_time(end)}: renew it")
    if begin > now:
        raise DialError(f"the host's certificate in {files.cert_file} is not valid before {_time(begin)}")
    return found


def _time(moment: datetime) -> str:
    return format_time(moment.timestamp())


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as err:
        raise DialError(f"{path!r} cannot be read: {why_unread(err)}") from err


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the common name, then the subject alternative names, each once."""
    common = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return tuple(dict.fromkeys(common))
    kinds: tuple[type[x509.GeneralName], ...] = (
        x509.DNSName,
        x509.UniformResourceIdentifier,
        x509.IPAddress,
    )
    alternative = [str(name.value) for name in found if isinstance(name, kinds)]
    return tuple(dict.fromkeys((*common, *alternative)))


_LOG = get_logger()


class Renewal:
    """The renewal of one connection; made before the connection's files are read.

    `ends_s`: when the first certificate of the two sides expires, by the wall clock (Unix seconds).
    """

    def __init__(self, files: TlsFiles, clock: Callable[[], float] = wall_s) -> None:
        self.ends_s = float("inf")
        self._files = files
        self._clock = clock
        self._stamp = _stamp(files)
        self._told = ""

    def due(self) -> str:
        """Return why the connection must be made again, as the end of a sentence; empty if it may stay.

        Unusable new files are no reason: they may be about to be replaced, and the connection still works.
        """
        if self._clock() >= self.ends_s:
            return "reconnects: a certificate of this connection has expired"
        if _stamp(self._files) == self._stamp:
            return ""
        try:
            own_certificate(self._files, trust(self._files))
        except DialError as err:
            if str(err) != self._told:
                self._told = str(err)
                _LOG.warning("attachment.not_renewed", error=self._told)
            return ""
        return "reconnects: the files of its tls were replaced"


def _stamp(files: TlsFiles) -> Stamp | None:
    try:
        return stamp_of((files.ca_file, files.cert_file, files.key_file))
    except TlsError:
        return None  # a file is missing, maybe for a moment


_FIRST_BYTES: Final = 9
"""The length of the head of the first HTTP/2 frame, which a server sends when it accepts a connection."""


async def behind_tls(host: str, port: int, files: TlsFiles, timeout_s: float) -> Peer:
    """Return the peer behind TLS. Raises PeerRefusedError for a wrong certificate, else DialError."""
    renewal = Renewal(files)
    context = trust(files)
    own = own_certificate(files, context)
    name = files.server_name or host
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            certificate = await _shown(host, port, context, name)
    except TimeoutError as err:
        raise DialError(f"{where} does not answer over TLS within {timeout_s:g} s") from err
    except ssl.SSLCertVerificationError as err:
        text = f"the certificate of {where} is not valid: {err.verify_message.rstrip('.')}"
        raise PeerRefusedError(f"{text} (expected: {name}, signed by {files.ca_file})") from err
    except ssl.SSLError as err:
        raise PeerRefusedError(f"{where}: the TLS handshake failed: {err.reason or err}") from err
    except OSError as err:
        raise DialError(f"{where}: {err.strerror or err}") from err
    if certificate is None:
        raise DialError(
            f"{where} does not accept the host's certificate in {files.cert_file},"
            f" which names {', '.join(names_of(own)) or 'no name'}:"
            " is it signed by the authority that the plugin trusts?"
        )
    found = x509.load_der_x509_certificate(certificate)
    renewal.ends_s = min(one.not_valid_after_utc.timestamp() for one in (own, found))
    return Peer(
        names=names_of(found), fingerprint=found.fingerprint(hashes.SHA256()).hex(), renewal=renewal.due
    )


async def _shown(host: str, port: int, context: ssl.SSLContext, name: str) -> bytes | None:
    """Return the server's certificate; None if the server refused the host's certificate.

    A server with TLS 1.3 refuses it by closing the connection after the handshake.
    """
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        try:
            return shown if await reader.read(_FIRST_BYTES) else None
        except ConnectionError:
            return None
    finally:
        writer.transport.abort()
