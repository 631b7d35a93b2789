"""TLS settings of HTTP extenders are tried out before anything is built from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from berth_host.config.checks.extender_tls import ExtenderTlsError, check_extender_tls
from berth_host.config.decoding.types_v1 import Extender, ExtenderTls

# Made for this test and good for nothing else.
CERTIFICATE = b"""\
-----BEGIN CERTIFICATE-----
MIIBhTCCASugAwIBAgIURsodREFP/Md01JfAtLatNRGI1GYwCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMZXhhbXBsZS50ZXN0MCAXDTI2MTEyMDEyMzQyMVoYDzIxMjYx
MDI3MTIzNDIxWjAXMRUwEwYDVQQDDAxleGFtcGxlLnRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAASTJrqgtFBD34MnWiE031uRaSIAhtsRC0B565bbGgZ5cZqV
A0gNb+W4PWuY8PnCMMmxvp2IXXCXPiyBHxptLYl2o1MwUTAdBgNVHQ4EFgQUiiIK
yS5wV4ji1RWI+FxHW0xpnCkwHwYDVR0jBBgwFoAUiiIKyS5wV4ji1RWI+FxHW0xp
nCkwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAj+W/HwzBFvTf
T2yI2VaqpKRninpiPbyKJ5F9gYn7YzMCIG/oaCKlBQBgen4FuI6HYJTJIcZQfn5R
WwjtI4WRrEYh
-----END CERTIFICATE-----
"""
KEY = b"""\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgY4YTRmkhzjirBQlG
hOz7Lk8//bzj/qG2B5rnJB5ITFmhRANCAASTJrqgtFBD34MnWiE031uRaSIAhtsR
C0B565bbGgZ5cZqVA0gNb+W4PWuY8PnCMMmxvp2IXXCXPiyBHxptLYl2
-----END PRIVATE KEY-----
"""
OTHER_KEY = b"""\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgn3drgojdBX8qUoat
WsukyrYO6bHziihRVR+/Gtvcm66hRANCAASBZsj0BQWGn8JTpTQDj7UUzC6NrXk0
qP1+qcYROBN2l9l9NCokz21vpZP2+eJ/kxsd+z6mjmgmua1MSDcNdcb5
-----END PRIVATE KEY-----
"""


def check(*, https: bool = True, **tls: Any) -> None:
    check_extender_tls(Extender(enable_https=https, tls=ExtenderTls(**tls)))


def test_no_settings_are_fine_with_and_without_https() -> None:
    check_extender_tls(Extender())
    check_extender_tls(Extender(enable_https=True))


def test_certificates_from_data_and_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"# comment \xff\n" + CERTIFICATE)
    check(ca_file=str(tmp_path / "ca.crt"))
    check(ca_data=CERTIFICATE, cert_data=CERTIFICATE, key_data=KEY)


def test_data_beats_files() -> None:
    check(ca_data=CERTIFICATE, ca_file="/does/not/exist")


def test_files_of_settings_without_any_tls_are_not_read() -> None:
    check(https=False, cert_file="/does/not/exist")


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        pytest.param({"insecure": True, "ca_data": CERTIFICATE}, "insecure flag is not allowed", id="both"),
        pytest.param({"ca_file": "/does/not/exist"}, "open /does/not/exist: no such file", id="no file"),
        pytest.param({"ca_file": "/"}, "open /: is a directory", id="folder"),
        pytest.param({"ca_data": b"garbage"}, "unable to load root certificates", id="no certificate"),
        pytest.param({"ca_data": b"\xff\xfe"}, "unable to load root certificates", id="no text"),
        pytest.param({"cert_file": "/does/not/exist"}, "no such file", id="read although there is no key"),
        pytest.param({"cert_data": CERTIFICATE, "key_data": b"x"}, "not a valid pair", id="no key"),
        pytest.param({"cert_data": CERTIFICATE, "key_data": OTHER_KEY}, "not a valid pair", id="other key"),
    ],
)
def test_unusable_settings_are_refused(tls: dict[str, Any], message: str) -> None:
    with pytest.raises(ExtenderTlsError, match=message):
        check(**tls)


def test_a_pair_of_files_is_read_but_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"garbage")
    check(cert_file=str(tmp_path / "c"), key_file=str(tmp_path / "c"))
