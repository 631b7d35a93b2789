"""`berth-sdk reflect` lists what a server offers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from berth_sdk import Plugin
from berth_sdk.__main__ import main
from berth_sdk.serve.server import PluginServer
from berth_sdk.serve.tls import TlsServing
from support.certificates import Authority, pair_files
from support.sdk_server import Serving


class Plain(Plugin):
    """Lets every node pass."""

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None


def test_reflect_lists_services_and_methods(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with Serving(tmp_path, Plain) as serving:
        assert main(["reflect", serving.address]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("berth.plugin.v1.IdentityService")
    assert lines[start + 1 : start + 5] == ["  Handshake", "  Configure", "  Probe", "  Drain"]
    assert "berth.plugin.v1.SchedulingService" in lines
    assert "grpc.health.v1.Health" in lines


def test_reflect_fails_when_no_server_answers(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reflect", f"unix:{tmp_path}/nobody.sock"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


def test_reflect_tells_a_server_without_reflection_from_an_absent_one(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_health.v1", None)
    with Serving(tmp_path, Plain) as serving:
        assert main(["reflect", serving.address]) == 1
    said = capsys.readouterr().err
    assert "the server has no reflection" in said
    for language in ("Python", "Go", "Java", "Node", "Rust"):
        assert f"\n  {language} " in said


def test_reflect_presents_its_certificate_to_a_server_with_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority()
    plugin = pair_files(tmp_path, "plugin", authority.issue("plugin", dns="plugin.example"), authority)
    own = pair_files(tmp_path, "own", authority.issue("me", dns="me.example"), authority)
    serving = TlsServing(
        cert_file=str(plugin.certificate),
        key_file=str(plugin.key),
        client_ca_file=str(plugin.authority),
        client_names=("me.example",),
    )
    tls = ["--tls-ca", str(own.authority), "--tls-cert", str(own.certificate), "--tls-key", str(own.key)]
    with PluginServer({"Plain": Plain}, tls=serving) as server:
        address = server.listen("127.0.0.1:0")
        assert main(["reflect", address, *tls, "--tls-server-name", "plugin.example"]) == 0
        assert "berth.plugin.v1.IdentityService" in capsys.readouterr().out.splitlines()
        assert main(["reflect", address, *tls]) == 1  # the name is not 127.0.0.1
        assert "UNAVAILABLE" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["reflect", "conformance"])
@pytest.mark.parametrize(
    "endpoint",
    ["", "unix:", "unix://", "localhost", ":7001", "http://127.0.0.1:7001", "127.0.0.1:99999", "127.0.0.1:0"],
)
def test_what_is_no_address_is_refused_with_the_form(
    command: str, endpoint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([command, endpoint]) == 2
    said = capfd.readouterr().err
    assert f"{endpoint!r} is not an address: write unix:PATH" in said
    assert len(said.splitlines()) == 1  # gRPC adds no lines of its own


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--tls-ca", "x"], "together: add --tls-cert, --tls-key"),
        (["--tls-server-name", "x"], "together: add --tls-ca, --tls-cert, --tls-key"),
        (["--tls-ca", "no.pem", "--tls-cert", "x", "--tls-key", "y"], "no.pem: No such file or directory"),
    ],
)
def test_reflect_refuses_incomplete_tls_options_and_missing_files(
    options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reflect", "127.0.0.1:1", *options]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("command", ["reflect", "conformance"])
def test_address_with_two_slashes_and_a_relative_path_is_named(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "unix://run/p.sock"]) == 2
    said = "after unix:// the path begins with /: write unix:///run/p.sock, or unix:run/p.sock"
    assert said in capsys.readouterr().err
