"""`berth-sdk reflect` lists what a server offers."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from berth_sdk import Plugin
from berth_sdk.__main__ import main
from support.sdk_server import Serving


class Plain(Plugin):
    """Lets every node pass."""

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None


def test_services_and_methods_are_listed(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with Serving(tmp_path, Plain) as serving:
        assert main(["reflect", serving.address]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("berth.plugin.v1.IdentityService")
    assert lines[start + 1 : start + 5] == ["  Handshake", "  Configure", "  Probe", "  Drain"]
    assert "berth.plugin.v1.SchedulingService" in lines
    assert "grpc.health.v1.Health" in lines


def test_a_server_that_does_not_answer_is_an_error(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reflect", f"unix:{tmp_path}/nobody.sock"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


def test_a_server_without_reflection_is_told_from_one_that_is_gone(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_health.v1", None)
    with Serving(tmp_path, Plain) as serving:
        assert main(["reflect", serving.address]) == 1
    assert "the server offers no reflection" in capsys.readouterr().err
