"""The keeper of a life: its ledger, the pods that it holds, and the errors that it draws."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from berth_bench.life.plugins import keeper
from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation
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


class Waits:
    """A handle with the pods that wait at Permit."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def waiting_pods(self, *, only_mine: bool) -> list[Any]:
        assert only_mine
        return list(self.waiting)

    def allow(self, waiting: Any) -> None:
        self.waiting.remove(waiting)


def another(uid: str) -> Pod:
    return replace(WEB, name=uid, uid=uid)


def made(error_share: float = 0.0) -> tuple[Any, Any]:
    cls, ledgers = keeper(random.Random(0), error_share)
    plugin = cls({}, cast(Handle, Waits()))
    return plugin, ledgers[-1]


def test_reservation_ends_with_unreserve_or_post_bind() -> None:
    plugin, ledger = made()
    for end in ("unreserve", "post_bind"):
        assert plugin.reserve(STATE, WEB, "n1").is_success
        assert list(ledger.held.values()) == ["default/web"]
        assert plugin.permit(STATE, WEB, "n1").is_success
        assert plugin.pre_bind(STATE, WEB, "n1", ()).status.is_success
        getattr(plugin, end)(STATE, WEB, "n1")
        assert (ledger.held, ledger.permitted) == ({}, set())
    assert ledger.broken == []


def test_calls_in_a_wrong_order_are_noted() -> None:
    plugin, ledger = made()
    plugin.pre_bind(STATE, WEB, "n1", ())
    plugin.post_bind(STATE, WEB, "n1")
    plugin.reserve(STATE, WEB, "n1")
    plugin.reserve(STATE, WEB, "n1")
    plugin.unreserve(STATE, WEB, "n1")
    plugin.unreserve(STATE, WEB, "n1")
    assert ledger.broken == [
        "PreBind of default/web without Reserve",
        "PreBind of default/web without Permit",
        "PostBind of default/web without Reserve",
        "Reserve of default/web twice, without Unreserve",
        "Unreserve of default/web twice, or after PostBind",
    ]


def test_unreserve_without_reserve_is_right_as_another_plugin_may_have_failed() -> None:
    plugin, ledger = made()
    state = CycleState("cycle")
    plugin.unreserve(state, WEB, "n1")
    plugin.reserve(state, WEB, "n1")
    plugin.unreserve(state, WEB, "n1")
    plugin.unreserve(CycleState("next"), WEB, "n1")
    assert ledger.broken == []
    plugin.unreserve(state, WEB, "n1")
    assert ledger.broken == ["Unreserve of default/web twice, or after PostBind"]


@pytest.mark.parametrize("is_released", [False, True])
def test_one_pod_of_five_is_held_until_the_next_comes(is_released: bool) -> None:
    plugin, ledger = made()
    for number in range(4):
        assert plugin.permit(STATE, another(f"u{number}"), "n1").is_success
    plugin.reserve(STATE, WEB, "n1")
    assert plugin.permit(STATE, WEB, "n1").status.code is Code.WAIT
    plugin.handle.waiting.append(SimpleNamespace(pod=WEB))
    if is_released:
        plugin.permit(STATE, another("next"), "n1")
        assert plugin.handle.waiting == []
    plugin.pre_bind(STATE, WEB, "n1", ())
    assert ledger.broken == ([] if is_released else ["PreBind of default/web while Permit holds it"])


def test_share_of_calls_fails() -> None:
    plugin, _ = made(0.5)
    codes = [plugin.pre_bind(STATE, WEB, "n1", ()).status.code for _ in range(200)]
    assert 60 < codes.count(Code.ERROR) < 140


def test_reservations_of_the_host_before_are_taken_up_after_a_reload() -> None:
    plugin, ledger = made()
    plugin.reconcile([LiveReservation(state=STATE, pod=WEB, node_name="n1")])
    plugin.post_bind(STATE, WEB, "n1")
    assert (ledger.held, ledger.broken) == ({}, [])
