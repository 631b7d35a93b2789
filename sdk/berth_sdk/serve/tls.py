"""`TlsServing`: the settings of a plugin server for mutual TLS. `server` reads them."""

from __future__ import annotations

from dataclasses import dataclass

from berth_sdk.wire.certificate import CertificateFiles, TlsError


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServing:
    """PEM files, and the names of the hosts that may attach.

    The files: the server's certificate with its chain, its key, and the authority of the hosts' certificates.
    `client_names`: each a common name or a subject alternative name.
    """

    cert_file: str
    key_file: str
    client_ca_file: str
    client_names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise TlsError for a missing setting, as the server would let in more hosts than intended."""
        if not (self.cert_file and self.key_file and self.client_ca_file and all(self.client_names)):
            raise TlsError("TLS takes a certificate, its key and the authority of the hosts' certificates")
        if not self.client_names:
            raise TlsError("TLS takes the name in the certificate of the host that may attach")

    @property
    def files(self) -> CertificateFiles:
        """The three files."""
        return CertificateFiles(cert_file=self.cert_file, key_file=self.key_file, ca_file=self.client_ca_file)
