"""`Certificate`: the PEM files of one side of mutual TLS -> gRPC credentials that follow the files.

Used where files are replaced while a process runs: by a plugin server and by the host's server for plugins
behind TLS, each also to dial the other. A set of files that was replaced takes effect with the next
connection. One that cannot be used is told once, and the last good one stays: a connection in plaintext is
never made of it.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from berth_sdk.errors import BerthError

LOG: Final = logging.getLogger("berth_sdk.wire.certificate")
FEATURE: Final = "handle-tls"
"""The name that both sides give in the handshake where the way back may be over TLS."""
_TRIES: Final = 3
"""Looks at files that are being replaced, one after the other, at the moment when they are read."""
_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class TlsError(BerthError):
    """The files cannot be used; the text names the file and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files: a certificate with its chain, its key, the authority of the other side's certificates."""

    cert_file: str
    key_file: str
    ca_file: str

    @property
    def paths(self) -> tuple[str, str, str]:
        """All of them."""
        return self.cert_file, self.key_file, self.ca_file


@dataclass(frozen=True, slots=True)
class _Loaded:
    certificate: bytes
    key: bytes
    authority: bytes


class Certificate:
    """loaded -the files change-> loaded anew, or kept where the new ones are no good"""

    def __init__(self, files: CertificateFiles, tell: Callable[[str], None] | None = None) -> None:
        """`tell`: hears in any thread what is wrong with files that came, empty: they are in use; None: the
        log does. Raises TlsError.
        """
        self._files = files
        self._tell = tell or self._log
        self._lock = threading.Lock()
        self._stamp, self._loaded = self._read_whole()
        self._served = self._loaded
        """What the server was told last."""
        self._dialled: tuple[_Loaded, grpc.ChannelCredentials] | None = None

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a port. A client without a certificate of the authority is refused in the handshake."""
        # None is the documented answer for "no change", which the types of the package do not know.
        changed: Any = self.changed
        return grpc.dynamic_ssl_server_credentials(_configuration(self._served), changed, True)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What a connection that begins now is to use; None: the same as the one before. Asked by gRPC, in a
        thread of its own.
        """
        with self._lock:
            self._follow()
            if self._loaded is self._served:
                return None
            self._served = self._loaded
            return _configuration(self._served)

    def client_credentials(self) -> grpc.ChannelCredentials:
        """For a channel; the same object until the files change."""
        with self._lock:
            self._follow()
            if self._dialled is None or self._dialled[0] is not self._loaded:
                loaded = self._loaded
                made = grpc.ssl_channel_credentials(loaded.authority, loaded.key, loaded.certificate)
                self._dialled = loaded, made
            return self._dialled[1]

    def _follow(self) -> None:
        """Take up the files if they changed and are good."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._stamp, self._loaded = self._read_whole()
        except TlsError as err:
            self._tell(str(err))
        else:
            self._tell("")

    def _log(self, problem: str) -> None:
        if problem:
            LOG.warning("the certificate before stays in use: %s", problem)
        else:
            LOG.info("the certificate in %s is in use", self._files.cert_file)

    def _look(self) -> _Stamp:
        stamps = []
        for path in self._files.paths:
            try:
                found = Path(path).stat()
            except OSError as err:
                raise TlsError(f"{path}: {err.strerror}") from err
            stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
        return tuple(stamps)

    def _read_whole(self) -> tuple[_Stamp, _Loaded]:
        """Files of one moment: a certificate and a key of two would pass no handshake. Raises TlsError."""
        for _ in range(_TRIES):
            stamp = self._look()
            loaded = self._load()
            if self._look() == stamp:
                return stamp, loaded
        raise TlsError(f"{', '.join(self._files.paths)} are being replaced")

    def _load(self) -> _Loaded:
        files = self._files
        loaded = _Loaded(*map(_read, files.paths))
        # gRPC finds a bad file when the other side connects, and tells nobody which one it was.
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
