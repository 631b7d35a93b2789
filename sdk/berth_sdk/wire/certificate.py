"""`Certificate`: the PEM files of one side of mutual TLS -> gRPC credentials that follow the files.

A plugin server and the host's server for plugins with TLS use it, to serve and to dial the other. Files may
be replaced while the process runs: the next connection uses the new files. Files that cannot be used are
reported once, and the last good files stay in use. A connection never falls back to plaintext.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from berth_sdk.wire.followed_files import FollowedFiles
from berth_sdk.wire.followed_files import TlsError as TlsError

LOG: Final = logging.getLogger("berth_sdk.wire.certificate")
FEATURE: Final = "handle-tls"
"""The feature of the handshake with which calls to the host may use TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files: a certificate with its chain, its key, and the authority of the peer's certificates."""

    cert_file: str
    key_file: str
    ca_file: str

    @property
    def paths(self) -> tuple[str, str, str]:
        """The paths of all files."""
        return self.cert_file, self.key_file, self.ca_file


@dataclass(frozen=True, slots=True)
class _Loaded:
    certificate: bytes
    key: bytes
    authority: bytes


class Certificate:
    """The credentials of one side. loaded -the files change-> loaded again, or unchanged if they are bad."""

    def __init__(self, files: CertificateFiles, tell: Callable[[str], None] | None = None) -> None:
        """Load the files. Raises TlsError.

        `tell`: called, in any thread, after the files changed, with the problem, or with "" if they are in
        use; None: write it to the log.
        """
        self._files = files
        self._lock = threading.Lock()
        self._followed = FollowedFiles(files.paths, self._load, tell or self._log)
        self._served = self._followed.value
        """The files that the server uses."""
        self._dialled: tuple[_Loaded, grpc.ChannelCredentials] | None = None

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a port. The TLS handshake refuses clients without a valid certificate."""
        # None is documented to mean "no change", but is missing in the types of the package.
        changed: Any = self.changed
        return grpc.dynamic_ssl_server_credentials(_configuration(self._served), changed, True)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration for a new connection; None if it has not changed.

        gRPC calls this in its own thread.
        """
        with self._lock:
            loaded = self._followed.follow()
            if loaded is self._served:
                return None
            self._served = loaded
            return _configuration(loaded)

    @property
    def authority(self) -> bytes:
        """The PEM of the authority whose certificates the server takes, as of the files now."""
        with self._lock:
            return self._followed.follow().authority

    def client_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials for a channel: the same object until the files change."""
        with self._lock:
            loaded = self._followed.follow()
            if self._dialled is None or self._dialled[0] is not loaded:
                made = grpc.ssl_channel_credentials(loaded.authority, loaded.key, loaded.certificate)
                self._dialled = loaded, made
            return self._dialled[1]

    def _log(self, problem: str) -> None:
        if problem:
            LOG.warning("the previous certificate stays in use: %s", problem)
        else:
            LOG.info("the certificate in %s is in use", self._files.cert_file)

    def _load(self) -> _Loaded:
        files = self._files
        loaded = _Loaded(*map(_read, files.paths))
        # gRPC finds a bad file only when the other side connects, and does not name the file.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(files.cert_file, files.key_file, password="")
        except (OSError, ssl.SSLError) as err:
            raise TlsError(
                f"{files.cert_file} and {files.key_file} are no certificate with its key, in PEM and not"
                f" encrypted: {_why(err)}"
            ) from err
        try:
            context.load_verify_locations(files.ca_file)
        except (OSError, ssl.SSLError) as err:
            raise TlsError(f"{files.ca_file} holds no authority, in PEM: {_why(err)}") from err
        return loaded


def _configuration(loaded: _Loaded) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(loaded.key, loaded.certificate)], loaded.authority)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as err:
        raise TlsError(f"{path}: {err.strerror}") from err


def _why(err: OSError) -> str:
    return getattr(err, "reason", None) or err.strerror or type(err).__name__
