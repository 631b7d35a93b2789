"""The served plugin of a life: what its processes remember, and what the ledger knows of their answers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest
from berth_bench.life.guard import FORBIDDEN, GuardLedger, Memory, forbids, guard
from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
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


def made(ledger: GuardLedger, memory: Memory, error_share: float = 0.0) -> Any:
    cls = guard(ledger, memory, random.Random(0), 1, error_share)
    return cls({}, cast(Handle, None))


def test_binding_needs_each_answer_of_the_guard() -> None:
    ledger = GuardLedger()
    plugin, state = made(ledger, Memory()), CycleState("cycle")
    assert ledger.why_not("u", f"{FORBIDDEN}-1") == "although the guard forbids the node"
    assert ledger.why_not("u", "n1").endswith("to Filter")
    assert plugin.filter(state, WEB, Node(name="n1")).is_success
    assert plugin.filter(state, WEB, Node(name=f"{FORBIDDEN}-1")).code is Code.UNSCHEDULABLE
    assert ledger.why_not("u", "n1").endswith("to Reserve")
    assert ledger.why_not("u", "n2").endswith("to Filter")
    plugin.reserve(state, WEB, "n1")
    assert ledger.why_not("u", "n1").endswith("to PreBind")
    plugin.pre_bind(state, WEB, "n1", ())
    assert ledger.why_not("u", "n1") == ""


def test_guard_whose_answers_are_kept_is_not_asked_about_each_pod() -> None:
    ledgers = []
    for seed in range(20):
        ledgers.append(GuardLedger())
        guard(ledgers[-1], Memory(), random.Random(seed), 1, 0.0)
    assert {one.keeps for one in ledgers} == {False, True}
    kept = next(one for one in ledgers if one.keeps)
    assert kept.why_not("u", "n1").endswith("to Reserve")


@pytest.mark.parametrize("end", ["unreserve", "post_bind"])
def test_reservation_ends_once(end: str) -> None:
    memory = Memory()
    plugin, state = made(GuardLedger(), memory), CycleState("cycle")
    plugin.reserve(state, WEB, "n1")
    assert (memory.held, state.token) == ({"u": "default/web"}, b"n1")
    for _ in range(2):
        getattr(plugin, end)(state, WEB, "n1")
        assert memory.held == {}


def test_reconcile_takes_up_what_is_live_and_drops_the_rest() -> None:
    memory = Memory()
    plugin = made(GuardLedger(), memory)
    memory.held["gone"] = "default/gone"
    live = replace(WEB, name="live", uid="l")
    plugin.reconcile([LiveReservation(state=CycleState("c"), pod=live, node_name="n1")])
    assert memory.held == {"l": "default/live"}


def test_share_of_calls_fails_and_is_no_yes() -> None:
    ledger = GuardLedger()
    plugin = made(ledger, Memory(), 1.0)
    failed = 0
    for _ in range(40):
        try:
            failed += plugin.pre_bind(CycleState("c"), WEB, "n1", ()).status.code is Code.ERROR
        except RuntimeError:
            failed += 1
    assert failed == 40
    assert ledger.prepared == set()


def test_only_nodes_of_that_name_are_forbidden() -> None:
    assert [forbids(name) for name in ("node-1", "spare-a0", f"{FORBIDDEN}-3")] == [False, False, True]
