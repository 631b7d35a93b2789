"""The names in a certificate."""

from __future__ import annotations

from berth_host.attach.tls.names import names_of
from cryptography import x509
from support.certificates import Authority


def test_common_name_then_alternatives_each_once() -> None:
    authority = Authority("the ca")

    def names(pem: bytes) -> tuple[str, ...]:
        return names_of(x509.load_pem_x509_certificate(pem))

    assert names(authority.issue("berth", dns="host.example").certificate) == ("berth", "host.example")
    assert names(authority.issue("host.example", dns="host.example").certificate) == ("host.example",)
    assert names(authority.issue("berth").certificate) == ("berth", "127.0.0.1")
    assert names(authority.pem) == ("the ca",)
