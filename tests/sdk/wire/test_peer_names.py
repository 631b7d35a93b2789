"""Names of a caller, as gRPC tells them."""

from __future__ import annotations

import pytest
from berth_sdk.wire.peer_names import bears, is_over_tls, peer_names

OVER_TLS = {
    "transport_security_type": [b"ssl"],
    "x509_common_name": [b"gpu"],
    "x509_subject_alternative_name": [b"gpu.example", b"127.0.0.1"],
    "x509_pem_cert": [b"..."],
}


def test_common_and_alternative_names_are_read() -> None:
    assert peer_names(OVER_TLS) == ("gpu", "gpu.example", "127.0.0.1")
    assert peer_names({"x509_common_name": [b"\xff"]}) == ("�",)
    assert peer_names({}) == ()


def test_tls_is_told_from_plaintext() -> None:
    assert is_over_tls(OVER_TLS)
    assert not is_over_tls({})
    assert not is_over_tls({"transport_security_type": [b"insecure"]})


@pytest.mark.parametrize(
    ("name", "wanted", "does"),
    [
        ("gpu.example", "gpu.example", True),
        ("GPU.example", "gpu.EXAMPLE", True),
        ("*.example", "gpu.example", True),
        ("*.example", "a.gpu.example", False),
        ("*.example", "example", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("gpu.example", "x.gpu.example", False),
        ("*.", "example", False),
        ("*", "example", False),
    ],
)
def test_a_name_is_borne_as_tls_compares_it(name: str, wanted: str, does: bool) -> None:
    assert bears(("other", name), wanted) is does
