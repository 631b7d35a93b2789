"""Makes a TLS handshake with a plugin: its certificate's names and expiry, or why the handshake fails.

Called by `looking`, with the same files as gRPC's connection a moment later.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from berth_host.attach.peer import DialError, Peer, PeerRefusedError
from berth_host.attach.tls.files import own_certificate, trust
from berth_host.attach.tls.names import names_of
from berth_host.attach.tls.renewal import Renewal
from berth_host.config.berth.configuration import TlsFiles

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
            f" which names {', '.join(names_of(own)) or 'nobody'}:"
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
