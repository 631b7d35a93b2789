"""`handle` of BerthConfiguration: what is read, and which errors a bad one gets."""

from __future__ import annotations

import pytest
from berth_host.config.berth.configuration import BerthConfiguration, HandleListener, TlsFiles
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_berth_configuration

HEADER = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
TLS = "tls: {caFile: /ca, certFile: /cert, keyFile: /key}"
BIND = "bindAddress: '0.0.0.0:10270'"
REQUIRED = "both sides prove who they are"


def load(handle: str) -> BerthConfiguration:
    return load_berth_configuration(f"{HEADER}handle: {handle}\n", source="b.yaml")


def test_there_is_none_unless_it_is_given() -> None:
    assert load("null").handle is None
    assert "handle" not in load("null").to_json()


def test_all_fields_are_read_and_shown() -> None:
    text = (
        f"{{{BIND}, advertiseAddress: 'berth.example:443',"
        " tls: {caFile: /ca, certFile: /cert, keyFile: /key, serverName: berth}}"
    )
    found = load(text)
    tls = TlsFiles(ca_file="/ca", cert_file="/cert", key_file="/key", server_name="berth")
    assert found.handle == HandleListener(
        bind_address="0.0.0.0:10270", advertise_address="berth.example:443", tls=tls
    )
    assert found.to_json()["handle"] == {
        "bindAddress": "0.0.0.0:10270",
        "advertiseAddress": "berth.example:443",
        "tls": {"caFile": "/ca", "certFile": "/cert", "keyFile": "/key", "serverName": "berth"},
    }


@pytest.mark.parametrize("address", ["0.0.0.0:10270", "'[::]:10270'", "127.0.0.1:1", "'[fd00::1]:65535'"])
def test_it_listens_at_an_address_of_the_machine(address: str) -> None:
    assert load(f"{{bindAddress: {address}, {TLS}}}").handle is not None


@pytest.mark.parametrize(
    ("handle", "want"),
    [
        pytest.param("{}", ["handle.bindAddress: Required", "handle.tls: Required"], id="nothing"),
        pytest.param(
            f"{{{BIND}}}", ["handle.tls: Required value: plugins ask their host over TLS"], id="plain"
        ),
        pytest.param("{bindAddress: '127.0.0.1:1'}", ["handle.tls: Required"], id="plain, on loopback"),
        pytest.param(
            f"{{{BIND}, tls: {{certFile: /c}}}}",
            [
                f"handle.tls.caFile: Required value: {REQUIRED}",
                f"handle.tls.keyFile: Required value: {REQUIRED}",
            ],
            id="half of it",
        ),
        pytest.param(
            f"{{bindAddress: 'berth:1', {TLS}}}", ["an address of this machine"], id="bind to a name"
        ),
        pytest.param(f"{{bindAddress: '0.0.0.0', {TLS}}}", ["an address of this machine"], id="no port"),
        pytest.param(f"{{bindAddress: '0.0.0.0:0', {TLS}}}", ["an address of this machine"], id="any port"),
        pytest.param(f"{{bindAddress: '0.0.0.0:65536', {TLS}}}", ["an address of this"], id="high port"),
        pytest.param(f"{{bindAddress: 'unix:///x', {TLS}}}", ["an address of this machine"], id="socket"),
        pytest.param(
            f"{{{BIND}, advertiseAddress: '0.0.0.0:1', {TLS}}}", ["plugins cannot dial it"], id="wildcard"
        ),
        pytest.param(f"{{{BIND}, advertiseAddress: '[::]:1', {TLS}}}", ["cannot dial it"], id="wildcard six"),
        pytest.param(
            f"{{{BIND}, advertiseAddress: berth, {TLS}}}", ["write it as host:port"], id="no port told"
        ),
    ],
)
def test_values_that_make_no_sense(handle: str, want: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(handle)
    assert caught.value.kind == "validation"
    assert len(caught.value.errors) == len(want)
    for words in want:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        ("{bindAdress: x}", 'did you mean "bindAddress"?'),
        ("{insecure: true}", 'unknown field "handle.insecure"'),
        ("[]", "handle"),
        ("{tls: {caFle: x}}", 'did you mean "caFile"?'),
    ],
)
def test_wrong_shapes(handle: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(handle)
    assert caught.value.kind == "decode"
    assert words in str(caught.value)
