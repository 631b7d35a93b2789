"""Held ends against an oracle: none is told before both conditions hold, and each one is told once.

The oracle knows when the cache took the last write of each pod, or when a read showed that the pod was gone,
and which cycle was open then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.pod_groups import PodGroups
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.bound_ends import READ_BACK_S, BoundEnds, EndSeams
from berth_host.errors.cluster import UnavailableError
from berth_host.model.clock import ManualClock
from berth_host.model.internal_error import InternalError
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.frameworks import cycle_of
from support.tiers import examples

CLAIMS, CLAIM = "resource.k8s.io/resourceclaims", "ResourceClaim"
numbers = st.integers(min_value=0, max_value=7)


@dataclass(eq=False)
class Bound:
    """A pod on its way, in the eyes of the oracle. `events`: what the watch has yet to show, in order.

    `missing`: what the cache has yet to take: the pod, and the object that the cycle patched. `barred_by`:
    the cycle that was open when the last of them came; 0: none was.
    """

    pod: Pod
    uid: str
    missing: set[str]
    events: list[str] = field(default_factory=list)
    is_held: bool = False
    gone: str = ""
    barred_by: int = 0
    told: int = 0
    claim_uid: str = ""
    claim_version: int = 0


class HeldEnds(RuleBasedStateMachine):
    """Pods are bound, shown, finished, deleted and made again, in any order with cycles and reads."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.stores = ObjectStores()
        self.cache = Cache(self.stores.generations, PodGroups(self.stores.generations))
        self.snapshot = Snapshot(self.stores)
        self.cache.add_node(Node(name="n0", allocatable={"cpu": 4000}))
        self.snapshot.update(self.cache)
        self.pods: list[Bound] = []
        self.open_cycle = 0
        self.cycles = 0
        self.is_away = False
        self.claim_version = 0
        cluster: Any = self  # it calls `get` alone
        self.ends = BoundEnds(
            EndSeams(
                stores=self.stores,
                snapshot=self.snapshot,
                cluster=cluster,
                clock=self.clock,
                internal_error=InternalError(),
                watched=lambda: {CLAIMS},
                list_again=lambda _: None,
            )
        )

    # --- the parts around it ---------------------------------------------------------------------

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Read an object; a pod that is gone needs no event from now on."""
        if self.is_away:
            raise UnavailableError(resource, ref.key, "etcd is away")
        one = next(one for one in self.pods if ref.name in (one.pod.name, f"c-{one.pod.name}"))
        if resource == CLAIMS:
            return _claim(one, self.claim_version)
        if one.gone == "finished":
            self._came(one, "pod")
            return KubeObject.of({"metadata": {}, "status": {"phase": "Succeeded"}})
        if one.gone:
            self._came(one, "pod")
            return None
        return KubeObject.of({"metadata": {"name": ref.name}, "spec": {"nodeName": "n0"}})

    async def report_bound(self, attempt: Any) -> None:
        """Count the end."""
        next(one for one in self.pods if one.uid == attempt.pod.uid).told += 1

    def leave_bound(self, attempt: Any) -> None:
        """Fail: nothing is dropped here."""
        raise AssertionError("an end was dropped")

    def run(self, turns: int = 12) -> None:
        """Let the tasks run."""

        async def pass_turns() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(pass_turns())

    def _came(self, one: Bound, what: str) -> None:
        if what in one.missing:
            one.missing.discard(what)
            if not one.missing:
                one.barred_by = self.open_cycle

    # --- pods ------------------------------------------------------------------------------------

    @rule(patches=st.booleans())
    def assume(self, patches: bool) -> None:
        """A cycle chose the node of a new pod, and PreBind patched its claim, or not."""
        number = len(self.pods)
        uid = f"u{number}"
        pod = Pod(name=f"p{number}", namespace="default", uid=uid, resource_version="1")
        self.stores.put_pod(pod)
        self.cache.assume(pod.on_node("n0"))
        one = Bound(pod, uid, {"pod", "claim"} if patches else {"pod"})
        one.events = ["bound"]
        if patches:
            one.claim_uid = f"c{number}"
            self.stores.put(CLAIM, _claim(one, self.claim_version))
            self.claim_version += 1
            one.claim_version = self.claim_version
        self.pods.append(one)

    def _hold(self, one: Bound) -> None:
        attempt: Any = cycle_of(one.pod, ["n0"], cycle_id=one.uid)
        if one.claim_uid:
            attempt.written = ((CLAIMS, _claim(one, one.claim_version).ref),)
        one.is_held = True
        if not self.ends.holds(attempt, ("Demo",), self):
            one.told += 1

    @rule(at=numbers)
    def answer_the_binding(self, at: int) -> None:
        """The answer to the Binding came: the binding cycle is over."""
        waiting = [one for one in self.pods if not one.is_held]
        if waiting:
            with_loop(self.loop, lambda: self._hold(waiting[at % len(waiting)]))

    @rule(at=numbers)
    def show_before_the_answer(self, at: int) -> None:
        """The watch is quicker than the answer to the Binding."""
        waiting = [one for one in self.pods if not one.is_held and one.events]
        if waiting:
            one = waiting[at % len(waiting)]
            with_loop(self.loop, lambda: self._show(one))
            with_loop(self.loop, lambda: self._hold(one))

    @rule(at=numbers, how=st.sampled_from(["deleted", "finished", "made again"]))
    def leave(self, at: int, how: str) -> None:
        """A bound pod ends, or is deleted, in the cluster."""
        there = [one for one in self.pods if not one.gone and one.is_held]
        if there:
            one = there[at % len(there)]
            one.gone = how
            one.events.append(how)

    @rule(at=numbers)
    def show(self, at: int) -> None:
        """The watch shows the next change of a pod."""
        changed = [one for one in self.pods if one.events]
        if changed:
            one = changed[at % len(changed)]
            with_loop(self.loop, lambda: self._show(one))

    @rule(at=numbers)
    def show_only_the_last(self, at: int) -> None:
        """A relist shows what is there now, and not what was there in between."""
        changed = [one for one in self.pods if one.events]
        if changed:
            one = changed[at % len(changed)]
            del one.events[:-1]
            with_loop(self.loop, lambda: self._show(one))

    def _show(self, one: Bound) -> None:
        event = one.events.pop(0)
        known = self.cache.get_pod(one.uid)
        if event == "bound":
            shown = replace(one.pod, node_name="n0", resource_version="2")
            self.stores.put_pod(shown)
            self.cache.add_pod(shown)
        else:
            self.stores.remove_pod(one.pod)
            if known is not None:
                self.cache.remove_pod(one.pod)
            if event == "made again":
                self.stores.put_pod(replace(one.pod, uid=f"{one.uid}'"))
        self._came(one, "pod")
        self.ends.arrived("Pod", one.pod.ref)

    @rule(at=numbers, older=st.booleans())
    def show_claim(self, at: int, older: bool) -> None:
        """The watch shows the patched object, or a version of before."""
        patched = [one for one in self.pods if "claim" in one.missing]
        if not patched:
            return
        one = patched[at % len(patched)]

        def shown() -> None:
            item = _claim(one, one.claim_version - 1 if older else self.claim_version)
            self.stores.put(CLAIM, item)
            if not older:
                self._came(one, "claim")
            self.ends.arrived(CLAIM, item.ref)

        with_loop(self.loop, shown)

    # --- cycles and time -------------------------------------------------------------------------

    @rule()
    def open(self) -> None:
        """A cycle takes the newest snapshot, which ends the one before."""
        self.cycles += 1

        def opened() -> None:
            self.open_cycle = 0
            self.snapshot.release()
            self.snapshot.update(self.cache)
            self.snapshot.hold()

        with_loop(self.loop, opened)
        self.open_cycle = self.cycles

    @precondition(lambda self: self.open_cycle)
    @rule()
    def close(self) -> None:
        """The cycle's Permit has returned."""
        self.open_cycle = 0
        with_loop(self.loop, self.snapshot.release)

    @rule(seconds=st.sampled_from([1.0, READ_BACK_S, 3 * READ_BACK_S]), away=st.booleans())
    def wait(self, seconds: float, away: bool) -> None:
        """Time passes; the API server answers, or does not."""
        self.is_away = away
        with_loop(self.loop, lambda: self.clock.advance(seconds))
        self.run()

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def no_end_is_told_early_or_twice_and_none_without_need_is_held(self) -> None:
        self.run()
        for one in self.pods:
            may_be_told = (
                one.is_held and not one.missing and (not one.barred_by or one.barred_by != self.open_cycle)
            )
            assert one.told <= (1 if may_be_told else 0), one
            # With a cycle open, the end of an event that came before the Binding's answer may wait for it.
            if may_be_told and not self.open_cycle:
                assert one.told == 1, one

    def teardown(self) -> None:
        """Read what is gone, show the rest: all ends are told."""
        self.open_cycle = 0
        with_loop(self.loop, self.snapshot.release)
        for one in self.pods:
            if not one.is_held:
                with_loop(self.loop, lambda one=one: self._hold(one))
            while "claim" in one.missing:
                self.show_claim(0, False)
        self.is_away = False
        for _ in range(3):
            with_loop(self.loop, lambda: self.clock.advance(READ_BACK_S))
            self.run()
        assert all(one.told == 1 for one in self.pods if one.gone), self.pods
        for one in self.pods:
            while one.events:
                with_loop(self.loop, lambda one=one: self._show(one))
        self.run()
        assert [one.told for one in self.pods] == [1] * len(self.pods)
        assert (len(self.ends), self.ends.awaited, self.ends.oldest_s()) == (0, {}, {})
        self.loop.close()


def _claim(one: Bound, version: int) -> KubeObject:
    return KubeObject.of(
        {
            "metadata": {
                "name": f"c-{one.pod.name}",
                "namespace": "default",
                "uid": one.claim_uid,
                "resourceVersion": str(version),
            }
        }
    )


def with_loop(loop: asyncio.AbstractEventLoop, act: Any) -> None:
    """Call `act` on the loop, as the host does."""

    async def acted() -> None:
        act()

    loop.run_until_complete(acted())


HeldEnds.TestCase.settings = settings(max_examples=examples(160), stateful_step_count=30, deadline=None)
TestHeldEnds = HeldEnds.TestCase
