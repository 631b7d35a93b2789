"""Required plugins that nobody serves are absent; those on standby are not."""

from __future__ import annotations

from pathlib import Path

from berth_host.plugins.clients import Clients
from support.attached import PROFILE, AttachedHost, at_socket


def absent(host: AttachedHost) -> list[str]:
    return Clients(by_profile={PROFILE: host.clients}).absent(host.attachments.plugins)


def test_required_plugins_that_are_not_served_are_named_once(tmp_path: Path) -> None:
    host = AttachedHost([at_socket(tmp_path / "p.sock", "B", "A")])
    assert absent(host) == ["A", "B"]
    host.attachments.plugins["A"].stood_by_at.add("somewhere")
    assert absent(host) == ["B"]


def test_optional_plugins_may_be_missing(tmp_path: Path) -> None:
    assert absent(AttachedHost([at_socket(tmp_path / "p.sock", "A")], required=False)) == []
