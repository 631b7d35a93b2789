"""`TlsServing`: what a plugin server needs for mutual TLS. Read by `server`."""

from __future__ import annotations

from dataclasses import dataclass

from berth_sdk.wire.certificate import CertificateFiles, TlsError


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

    @property
    def files(self) -> CertificateFiles:
        """The files without the names."""
        return CertificateFiles(cert_file=self.cert_file, key_file=self.key_file, ca_file=self.client_ca_file)
