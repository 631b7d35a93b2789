"""An end does not wait for a version that the watch has shown and that cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cluster.port import WatchEvent
from berth_host.cycle.bound_ends import READ_BACK_S, BoundEnds, EndSeams
from berth_host.model.clock import ManualClock
from berth_host.model.internal_error import InternalError
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from support.frameworks import cycle_of
from support.watched_host import WatchedHost

NODE = ObjectRef(name="n1", uid="uid-n1", resource_version="7")


def a_node(version: str, *, is_readable: bool = False) -> dict[str, Any]:
    """A node; one that cannot be read has a taint that is a number."""
    spec = {} if is_readable else {"taints": [3]}
    return {"metadata": {"name": "n1", "uid": "uid-n1", "resourceVersion": version}, "spec": spec}


class Case:
    """A pod that is bound and shown, whose PreBind patched the node n1 at the version 7.

    `there`: what a read of an object gets; None: it is gone.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.there: KubeObject | None = None
        self.internal_error = InternalError()
        self.told = 0
        stores = ObjectStores()
        cluster: Any = self  # it calls `get` alone
        self.ends = BoundEnds(
            EndSeams(
                stores=stores,
                snapshot=Snapshot(stores),
                cluster=cluster,
                clock=self.clock,
                internal_error=self.internal_error,
                watched=lambda: {"nodes"},
                list_again=lambda _: None,
            )
        )
        self.host = WatchedHost(stores=stores, ends=self.ends)

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        return self.there

    async def report_bound(self, attempt: Any) -> None:
        self.told += 1

    def leave_bound(self, attempt: Any) -> None:
        raise AssertionError("an end was dropped")

    def bound(self, *, node_name: str = "n1") -> None:
        pod = Pod(name="web", namespace="default", uid="uid-web", resource_version="1", node_name=node_name)
        self.host.stores.put_pod(pod)
        attempt: Any = cycle_of(pod, ["n1"], cycle_id="c")
        if node_name:
            attempt.written = (("nodes", NODE),)
        assert self.ends.holds(attempt, ("Demo",), self) or self.told

    async def reads_back(self) -> int:
        """Let the time until a read pass; return how often the end was told."""
        self.clock.advance(READ_BACK_S)
        for _ in range(12):
            await asyncio.sleep(0)
        assert self.internal_error.error is None
        return self.told


async def test_version_of_the_patch_that_cannot_be_read_ends_the_wait() -> None:
    case = Case()
    case.host.shows("Node", a_node("6", is_readable=True))
    case.bound()
    case.there = KubeObject.of(a_node("7"))
    # An older version that cannot be read is not the patch.
    case.host.shows("Node", a_node("6"))
    assert await case.reads_back() == 0
    case.host.shows("Node", a_node("7"))
    assert await case.reads_back() == 1


async def test_patched_object_of_which_no_version_could_be_read_ends_the_wait() -> None:
    case = Case()
    case.host.shows("Node", a_node("6"))
    case.bound()
    case.there = KubeObject.of(a_node("9"))
    assert await case.reads_back() == 0
    case.host.shows("Node", a_node("9"))
    assert await case.reads_back() == 1


async def test_pod_of_which_nothing_can_be_read_ends_the_wait_once_the_watch_has_shown_it() -> None:
    case = Case()
    case.bound(node_name="")
    nothing = {"metadata": {"name": "web", "namespace": "default", "uid": "uid-web", "resourceVersion": "8"}}
    odd = KubeObject("v1", "Pod", parsed={**nothing, "spec": [1], "status": [2]})
    case.there = odd
    assert await case.reads_back() == 0
    case.host.handlers.handle(WatchEvent("Pod", None, odd))
    assert await case.reads_back() == 1


async def test_read_that_brings_no_json_tells_nothing_and_stops_nothing() -> None:
    case = Case()
    case.host.shows("Node", a_node("6", is_readable=True))
    case.bound()
    case.there = KubeObject("v1", "Node", raw=b"{")
    assert await case.reads_back() == 0
    case.there = None
    assert await case.reads_back() == 1


def test_object_that_can_be_read_again_or_is_gone_is_no_longer_unreadable() -> None:
    host = WatchedHost()
    for is_gone in (False, True):
        host.shows("Node", a_node("7"))
        assert host.stores.unreadable("Node", NODE) == NODE
        if is_gone:
            host.loses("Node", "n1")
        else:
            host.shows("Node", a_node("8", is_readable=True))
        assert host.stores.unreadable("Node", NODE) is None
