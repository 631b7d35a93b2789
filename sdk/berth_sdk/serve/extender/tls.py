"""`ServerTls`: the TLS context of the extender's server, which follows its files.

Files may be replaced while the process runs: the next connection uses the new files. Files that cannot be
used are reported once, and the last good files stay in use, as for gRPC (`wire.certificate`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.clocks import wall_s
from berth_sdk.wire.followed_files import FollowedFiles, TlsError
from berth_sdk.wire.verification import verify_as_go

LOG: Final = logging.getLogger("berth_sdk.serve.extender")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTls:
    """PEM files, and who may ask.

    `client_ca_file`: clients need a certificate of this authority; empty: any client may ask.
    `client_names`: common names or subject alternative names, of which a client's certificate has one; empty:
    any name.
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    client_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise TlsError for settings that do not go together."""
        if not self.cert_file or not self.key_file:
            raise TlsError("--tls-cert and --tls-key go together: an extender with TLS needs both")
        if self.client_names and not self.client_ca_file:
            raise TlsError("--tls-client-name needs --tls-client-ca: nobody else vouches for the name")

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path)


class ServerTls:
    """The context. loaded -the files change-> loaded again, or unchanged if they are bad."""

    def __init__(self, files: ExtenderTls) -> None:
        """Load the files. Raises TlsError."""
        self._files = files
        self._authority_of: dict[ssl.SSLContext, bytes] = {}
        """The authority of clients of each context that has been in use."""
        self._followed = FollowedFiles(files.paths, self._load, self._tell)
        self.context = self._followed.value
        # Called in every handshake, before the certificate is chosen.
        self.context.sni_callback = self._chosen

    def why_not(self, transport: asyncio.BaseTransport | None) -> str:
        """Return why a connection that is kept may not ask any more; "" if it may.

        Its client's certificate may have expired, or the authority of clients may have been replaced.
        """
        found: Any = None if transport is None else transport.get_extra_info("ssl_object")
        if found is None or not (certificate := found.getpeercert()):
            return ""
        if wall_s() >= ssl.cert_time_to_seconds(certificate["notAfter"]):
            return "has expired"
        if self._authority_of.get(found.context) != self._authority_of[self._followed.follow()]:
            return "is of an authority that was replaced"
        return ""

    def _chosen(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._followed.follow()

    def _tell(self, problem: str) -> None:
        if problem:
            LOG.warning("the previous certificate stays in use: %s", problem)
        else:
            LOG.info("the certificate in %s is in use", self._files.cert_file)

    def _load(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(files.cert_file, files.key_file, password="")
        except (OSError, ssl.SSLError) as err:
            raise TlsError(
                f"{files.cert_file} and {files.key_file} are no certificate with its key, in PEM and not"
                f" encrypted: {err}"
            ) from err
        if files.client_ca_file:
            try:
                context.load_verify_locations(files.client_ca_file)
            except (OSError, ssl.SSLError) as err:
                raise TlsError(f"{files.client_ca_file} holds no authority, in PEM: {err}") from err
            context.verify_mode = ssl.CERT_REQUIRED
        self._authority_of[context] = b"".join(sorted(context.get_ca_certs(binary_form=True)))
        return verify_as_go(context)


def names_in(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of a client's certificate, as `ssl` shows it: the common name first."""
    found = certificate or {}
    common = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    return (*common, *(value for _, value in found.get("subjectAltName", ())))
