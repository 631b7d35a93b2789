"""The fields of a log line about the process at an endpoint."""

from __future__ import annotations

from berth_host.attach.peer import Peer


def test_a_log_line_has_what_is_known() -> None:
    assert Peer().to_log() == {}
    assert Peer(uid=0, pid=0).to_log() == {"peer_uid": 0, "peer_pid": 0}
    over_tls = Peer(names=("gpu", "gpu.example"), fingerprint="ab")
    assert over_tls.to_log() == {"peer_names": ["gpu", "gpu.example"], "peer_certificate": "ab"}
