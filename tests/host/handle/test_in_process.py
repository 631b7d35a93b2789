"""The handle of a plugin inside the host: it calls directly on the loop, or from another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import pytest
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.handle.in_process import InProcessHandle
from berth_host.handle.null_backend import NoHost
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.kube_object import ObjectRef
from berth_sdk.results import Cancellation, Decision, NominatedPod, Nomination, WaitingPod
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_node, make_pod, make_table

WAITING = WaitingPod(
    pod=make_pod("held", uid="u"), cycle_id="c", node_name="n", pending_plugins=("Demo",), deadline_s=1.0
)


class Loud(NoHost):
    """Notes the thread in which it was asked, and what for."""

    def __init__(self) -> None:
        super().__init__(ObjectStores(Generations()), lambda: make_table([make_node("n1")]))
        self.asked: list[tuple[str, str]] = []

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        self.asked.append((f"{plugin} {only_mine}", threading.current_thread().name))
        return [WAITING]

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
        self.asked.append((f"{plugin} {uid} {cycle_id} {holder}", threading.current_thread().name))
        return Decision.APPLIED


async def test_handle_calls_on_the_loop_are_answered_at_once() -> None:
    backend = Loud()
    handle = InProcessHandle("Demo", backend)
    assert handle.waiting_pods(only_mine=True) == [WAITING]
    assert handle.allow(WAITING) is Decision.APPLIED
    assert handle.reject(WAITING, "no") is Decision.NOT_WAITING
    assert handle.cancel_binding(WAITING.pod) is Cancellation.NOT_IN_PRE_BIND
    assert handle.list_nominated_pods() == []
    assert handle.nominate(WAITING.pod, "n1") is Nomination.NOT_PENDING
    assert isinstance(handle.snapshot(), NodeTable)
    assert handle.requeue([make_pod("a")]) == 0
    assert handle.objects("persistentvolumeclaims").list() == []
    handle.invalidate_sort_keys()
    handle.record_event(ObjectRef(namespace="d", name="n", uid="u"), "Reason", "note")
    assert [asked for asked, _ in backend.asked] == ["Demo True", "Demo u c "]


async def test_handle_calls_of_a_thread_run_on_the_loop() -> None:
    backend = Loud()
    handle = InProcessHandle("Demo", backend)
    assert await asyncio.to_thread(handle.allow, WAITING) is Decision.APPLIED
    ((_, thread),) = backend.asked
    assert thread == threading.main_thread().name


async def test_nominations_of_a_thread_run_on_the_loop() -> None:
    class Nominating(Loud):
        def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
            self.asked.append((f"{plugin} {uid} {node_name}", threading.current_thread().name))
            return Nomination.APPLIED

        def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
            names = None if node_names is None else list(node_names)
            self.asked.append((f"{plugin} {names}", threading.current_thread().name))
            return [NominatedPod(pod=WAITING.pod, node_name="n")]

    backend = Nominating()
    handle = InProcessHandle("Demo", backend)
    for node_name in ("n", "", None):
        assert await asyncio.to_thread(handle.nominate, WAITING.pod, node_name) is Nomination.APPLIED
    for names in (None, iter(["n", "m"])):
        (item,) = await asyncio.to_thread(handle.list_nominated_pods, names)
        assert item.node_name == "n"
    assert [asked for asked, _ in backend.asked] == [
        "Demo u n",
        "Demo u ",
        "Demo u None",
        "Demo None",
        "Demo ['n', 'm']",
    ]
    assert {thread for _, thread in backend.asked} == {threading.main_thread().name}


async def test_run_scores_without_a_running_host_is_an_error() -> None:
    handle = InProcessHandle("Demo", Loud())
    with pytest.raises(HandleError, match="no call of Demo is open: no host runs"):
        await handle.run_scores(CycleState("c"), ["n1"])


def test_handle_call_of_a_thread_without_a_running_host_is_refused() -> None:
    handle = InProcessHandle("Demo", Loud())
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            handle.waiting_pods()
        except HandleError as err:
            caught.append(err)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(10)
    assert len(caught) == 1


async def test_an_error_of_the_host_reaches_the_thread_that_asked() -> None:
    class Refusing(Loud):
        def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
            raise HandleError("not now")

    handle = InProcessHandle("Demo", Refusing())
    with pytest.raises(HandleError, match="not now"):
        await asyncio.to_thread(handle.allow, WAITING)
