"""Whether the TLS settings of an HTTP extender can be used: files readable, certificates well formed.

Called when profiles are built; `extenders` loads client certificates with it.
Source: `pkg/scheduler/extender.go` (makeTransport), client-go `transport/transport.go` (TLSConfigFor), v1.36.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from berth_host.config.decoding.types_v1 import Extender, ExtenderTls
from berth_host.model.in_memory import load_pair


class ExtenderTlsError(Exception):
    """The TLS settings cannot be used. The text says why, without any key material."""


def check_extender_tls(extender: Extender) -> None:
    """Read and parse the files that a client would need. Raises ExtenderTlsError."""
    tls = extender.tls or ExtenderTls()
    has_ca = bool(tls.ca_data or tls.ca_file)
    has_certificate = bool(tls.cert_data or tls.cert_file) and bool(tls.key_data or tls.key_file)
    # HTTPS without any CA means: do not verify.
    is_insecure = tls.insecure or (extender.enable_https and not has_ca)
    if not (has_ca or has_certificate or is_insecure or tls.server_name):
        return
    if has_ca and is_insecure:
        raise ExtenderTlsError(
            "specifying a root certificates file with the insecure flag is not allowed: "
            "remove tlsConfig.insecure or the CA"
        )
    ca_data = tls.ca_data or _read(tls.ca_file)
    cert_data = tls.cert_data or _read(tls.cert_file)
    key_data = tls.key_data or _read(tls.key_file)
    if ca_data:
        _check_ca(ca_data)
    # client-go loads a pair that comes from files alone at every connection, and checks it only then.
    is_reloaded = not tls.cert_data and not tls.key_data
    if has_certificate and not is_reloaded:
        _check_pair(cert_data, key_data)


def _read(path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as err:
        reason = err.strerror.lower() if isinstance(err, OSError) and err.strerror else str(err)
        raise ExtenderTlsError(f"open {path}: {reason}") from err


def _check_ca(data: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as err:
        raise ExtenderTlsError("unable to load root certificates: no valid certificate found") from err


def load_client_pair(context: ssl.SSLContext, tls: ExtenderTls) -> None:
    """Load the client certificate and its key into `context`, if `tls` has both. Raises OSError (ssl.SSLError
    too) and ValueError.
    """
    cert_data = tls.cert_data or (Path(tls.cert_file).read_bytes() if tls.cert_file else b"")
    key_data = tls.key_data or (Path(tls.key_file).read_bytes() if tls.key_file else b"")
    if cert_data and key_data:
        load_pair(context, cert_data, key_data)


def _check_pair(cert_data: bytes, key_data: bytes) -> None:
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert_data, key_data)
    except (ssl.SSLError, OSError, ValueError) as err:
        raise ExtenderTlsError("tls: the certificate and the key are not a valid pair") from err
