"""The keeper of a life: its ledger, and the errors that it draws."""

from __future__ import annotations

import random
from typing import Any, cast

from berth_bench.life.plugins import keeper
from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.status import Code

WEB = Pod.from_object(
    KubeObject.of(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "app"}]},
        }
    )
)
STATE = CycleState("cycle")


def made(error_share: float = 0.0) -> tuple[Any, Any]:
    cls, ledgers = keeper(random.Random(0), error_share)
    plugin = cls({}, cast(Handle, None))
    return plugin, ledgers[-1]


def test_reservation_ends_with_unreserve_or_post_bind() -> None:
    plugin, ledger = made()
    for end in ("unreserve", "post_bind"):
        assert plugin.reserve(STATE, WEB, "n1").is_success
        assert list(ledger.held.values()) == ["default/web"]
        assert plugin.pre_bind(STATE, WEB, "n1", ()).status.is_success
        getattr(plugin, end)(STATE, WEB, "n1")
        assert ledger.held == {}
    assert ledger.broken == []


def test_calls_in_a_wrong_order_are_noted() -> None:
    plugin, ledger = made()
    plugin.pre_bind(STATE, WEB, "n1", ())
    plugin.post_bind(STATE, WEB, "n1")
    plugin.reserve(STATE, WEB, "n1")
    plugin.reserve(STATE, WEB, "n1")
    assert ledger.broken == [
        "PreBind of default/web without Reserve",
        "PostBind of default/web without Reserve",
        "Reserve of default/web twice, without Unreserve",
    ]


def test_share_of_calls_fails() -> None:
    plugin, _ = made(0.5)
    codes = [plugin.pre_bind(STATE, WEB, "n1", ()).status.code for _ in range(200)]
    assert 60 < codes.count(Code.ERROR) < 140
