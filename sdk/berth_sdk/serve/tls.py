"""Mutual TLS of a plugin server: files -> gRPC credentials that follow the files.

A pair of files that was replaced takes effect with the next connection. One that cannot be used is told once
in the log, and the last good one stays: a connection in plaintext is never made of it. Called by `server`.
"""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from berth_sdk.errors import BerthError

LOG: Final = logging.getLogger("berth_sdk.serve.server")
_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class TlsError(BerthError):
    """The files cannot be used; the text names the file and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServing:
    """PEM files: the server's certificate with its chain, its key, the authority of the hosts' certificates.
    `client_names`: the hosts that may attach, each a common name or a subject alternative name.
    """

    cert_file: str
    key_file: str
    client_ca_file: str
    client_names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises TlsError where something is left out: half of it would let in more than was meant."""
        if not (self.cert_file and self.key_file and self.client_ca_file and all(self.client_names)):
            raise TlsError("TLS takes a certificate, its key and the authority of the hosts' certificates")
        if not self.client_names:
            raise TlsError("TLS takes the name in the certificate of the host that may attach")


class ServerCertificate:
    """loaded -the files change-> loaded anew, or kept where the new ones are no good"""

    def __init__(self, files: TlsServing) -> None:
        """Raises TlsError."""
        self._files = files
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._first = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """For a port. A client without a certificate of the authority is refused in the handshake."""
        # None is the documented answer for "no change", which the types of the package do not know.
        changed: Any = self.changed
        return grpc.dynamic_ssl_server_credentials(self._first, changed, True)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What a connection that begins now is to use; None: the same as the one before. Asked by gRPC, in a
        thread of its own.
        """
        with self._lock:
            try:
                stamp = self._look()
                if stamp == self._stamp:
                    return None
                self._stamp = stamp
                found = self._load()
            except TlsError as err:
                LOG.warning("the certificate before stays in use: %s", err)
                return None
        LOG.info("the certificate in %s is in use", self._files.cert_file)
        return found

    def _look(self) -> _Stamp:
        files = self._files
        stamps = []
        for path in (files.cert_file, files.key_file, files.client_ca_file):
            try:
                found = Path(path).stat()
            except OSError as err:
                raise TlsError(f"{path}: {err.strerror}") from err
            stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
        return tuple(stamps)

    def _load(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        certificate, key, authority = map(_read, (files.cert_file, files.key_file, files.client_ca_file))
        # gRPC finds a bad file when a host connects, and tells nobody which one it was.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(files.cert_file, files.key_file, password="")
        except (OSError, ssl.SSLError) as err:
            raise TlsError(
                f"{files.cert_file} and {files.key_file} are no certificate with its key, in PEM and not"
                f" encrypted: {_why(err)}"
            ) from err
        try:
            context.load_verify_locations(files.client_ca_file)
        except (OSError, ssl.SSLError) as err:
            raise TlsError(f"{files.client_ca_file} holds no authority, in PEM: {_why(err)}") from err
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as err:
        raise TlsError(f"{path}: {err.strerror}") from err


def _why(err: OSError) -> str:
    return getattr(err, "reason", None) or err.strerror or type(err).__name__
