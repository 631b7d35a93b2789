"""Required plugins that are missing are named; one that is stood by for is there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from berth_host.app.readiness import absent_plugins
from support.attached import PROFILE, AttachedHost, at_socket


def absent(host: AttachedHost) -> list[str]:
    clients: Any = SimpleNamespace(by_profile={PROFILE: host.clients})
    return absent_plugins(clients, host.attachments.plugins)


def test_required_plugins_that_nobody_serves_are_named_once(tmp_path: Path) -> None:
    host = AttachedHost([at_socket(tmp_path / "p.sock", "B", "A")])
    assert absent(host) == ["A", "B"]
    host.attachments.plugins["A"].stood_by_at.add("somewhere")
    assert absent(host) == ["B"]


def test_others_may_be_missing(tmp_path: Path) -> None:
    assert absent(AttachedHost([at_socket(tmp_path / "p.sock", "A")], required=False)) == []
