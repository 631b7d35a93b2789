"""The newest release of the contract is the version that host and SDK name in the handshake."""

from __future__ import annotations

from berth_host.attach.handshake import OFFERED
from berth_sdk.serve.instance import CONTRACT
from protocheck import released
from support.places import ROOT


def test_host_and_sdk_name_the_newest_release() -> None:
    newest = released.releases(ROOT / "proto")[-1]
    assert (newest.major, newest.minor) == CONTRACT == max(OFFERED)
