"""Reads the files of a plugin's `tls`, again for each attachment; errors name the wrong file.

The functions raise `DialError`, so that the attachment waits and retries: files are replaced while hosts run,
and a host that cannot use them must not fall back to plaintext. Called by `dialing` and `look`.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509

from berth_host.attach.peer import DialError
from berth_host.config.berth.configuration import TlsFiles
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
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as err:
        raise DialError(f"{path!r} cannot be read: {why_unread(err)}") from err
