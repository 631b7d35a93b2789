"""Reads the names in a certificate, for logs and messages."""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID


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
