"""`PluginHost`: an author's tests get what a real host would give."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from berth_host.rpc.scores import normalize
from berth_sdk import (
    BindResult,
    ClusterEvent,
    Code,
    CycleState,
    Decision,
    EventInterest,
    Handle,
    HandleError,
    Hint,
    Need,
    ObjectPatch,
    ObjectRef,
    PatchOutcome,
    PermitResult,
    Plugin,
    PluginAnswerError,
    PluginArgsError,
    PluginDefinitionError,
    Pod,
    PreBindResult,
    PreFlightResult,
    QueuedPod,
    ReserveResult,
    ScoreNormalization,
    Status,
    UndeclaredError,
    WaitingPod,
    sort_keys,
)
from berth_sdk.runtime.normalization import normalized
from berth_sdk.tables import NodeView
from berth_sdk.testing import PluginHost, make_node, make_pod
from hypothesis import given
from hypothesis import strategies as st

CLAIMS = "persistentvolumeclaims"
NODES = [make_node("n1", labels={"pool": "spot"}), make_node("n2"), make_node("n3", cpu=8)]
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default", "resourceVersion": "4"},
}


class Example(Plugin):
    """A cluster with nodes of several kinds; `limit` pods per node."""

    normalization = ScoreNormalization.HOST_MAX
    needs = (Need.nodes(), Need.pods(), Need.objects(CLAIMS))
    events = (EventInterest("Node", ("add",), Hint.ASK_PLUGIN),)

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.limit = args.get("limit", 1)
        if self.limit < 0:
            raise PluginArgsError("limit must not be negative")

    def pre_enqueue(self, pod: QueuedPod) -> Status | None:
        return Status.unresolvable("gated") if pod.pod.labels.get("gated") else None

    def sort_key(self, pod: QueuedPod) -> bytes:
        return sort_keys.descending(sort_keys.integer(pod.pod.priority))

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        return pod.priority > 0

    def pre_filter(self, state: CycleState, pod: Pod, nodes: Any) -> Status | None:
        return Status.skip() if pod.labels.get("skip") else None

    async def filter(self, state: CycleState, pod: Pod, node: Any) -> Status | None:
        if node.labels.get("pool") == "spot":
            return Status.unresolvable("node is a spot node")
        return Status.unschedulable("too many pods") if len(node.pods) >= self.limit else None

    def post_filter(self, state: CycleState, pod: Pod, rejections: Any) -> Status:
        return Status.unschedulable(", ".join(sorted(rejections.by_node)))

    def pre_score(self, state: CycleState, pod: Pod, nodes: Any) -> Status | None:
        return Status.skip() if pod.labels.get("skip") else None

    def score(self, state: CycleState, pod: Pod, node: Any) -> int:
        return int(node.allocatable["cpu"])

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        state.write("node", node_name)
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        state.delete("node")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait(3) if pod.labels.get("gang") else Status.success()

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> PreBindResult | Status:
        if pod.annotations.get("node") != node_name:
            patch = {"metadata": {"annotations": {"node": node_name}}}
            return PreBindResult(
                Status.success(),
                (
                    ObjectPatch(resource="pods", ref=pod.ref, merge_patch=patch),
                    ObjectPatch(
                        resource=CLAIMS,
                        ref=ObjectRef(name="data", namespace="default"),
                        merge_patch=patch,
                        expected_resource_version=pod.labels.get("expect", ""),
                    ),
                ),
            )
        failed = [result for result in patched if result.outcome is not PatchOutcome.APPLIED]
        return Status.unschedulable(failed[0].outcome.name) if failed else Status.success()

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        return BindResult(Status.success(), host_binds=True)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.handle.record_event(pod.ref, "Bound", node_name)


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(Example, {"limit": 1}, nodes=NODES, objects={CLAIMS: [CLAIM]})


def test_filter_returns_a_verdict_per_node(host: PluginHost) -> None:
    host.put_pod(make_pod("there", node="n2"))
    got = host.attempt(make_pod("web")).filter()
    assert {name: status.message for name, status in got.items()} == {
        "n1": "node is a spot node",
        "n2": "too many pods",
        "n3": "",
    }


def test_filter_and_score_take_node_names(host: PluginHost) -> None:
    assert list(host.attempt(make_pod("web")).filter("n3", "n2")) == ["n2", "n3"]
    with pytest.raises(KeyError, match="no node n9"):
        host.attempt(make_pod("web")).filter("n9")


def test_an_attempt_reads_the_cluster_of_its_beginning(host: PluginHost) -> None:
    attempt = host.attempt(make_pod("web"))
    pod = make_pod("there", node="n2")
    host.put_pod(pod)
    assert attempt.filter()["n2"].is_success
    assert not host.attempt(make_pod("web")).filter()["n2"].is_success
    host.remove_pod(pod)
    host.put_node(make_node("n4"))
    assert set(host.attempt(make_pod("web")).filter()) == {"n1", "n2", "n3", "n4"}


def test_what_if_removes_and_adds_pods(host: PluginHost) -> None:
    there = make_pod("there", node="n2")
    host.put_pod(there)
    attempt = host.attempt(make_pod("web"))
    assert attempt.what_if("n2").message == "too many pods"
    assert attempt.what_if("n2", removed=[there]).is_success
    assert attempt.what_if("n3", added=[make_pod("other")]).message == "too many pods"


def test_post_filter_gets_the_plugins_own_rejections(host: PluginHost) -> None:
    attempt = host.attempt(make_pod("web"))
    assert attempt.post_filter().status.message == "n1"
    assert attempt.post_filter({"n7": Status.unschedulable()}).status.message == "n7"


def test_scores_are_normalised(host: PluginHost) -> None:
    assert host.attempt(make_pod("web")).score("n2", "n3") == {"n2": 50, "n3": 100}


def test_skip_of_a_plugin_is_visible(host: PluginHost) -> None:
    attempt = host.attempt(make_pod("web", labels={"skip": "1"}))
    assert attempt.pre_filter().status == Status.skip()
    assert attempt.score() == {}


def test_reserve_and_unreserve_share_the_state(host: PluginHost) -> None:
    attempt = host.attempt(make_pod("web"))
    assert attempt.reserve("n2").is_success
    assert attempt.state.read("node") == "n2"
    attempt.unreserve("n2")
    assert attempt.state.get("node") is None


def test_permit_may_return_wait(host: PluginHost) -> None:
    assert host.attempt(make_pod("web")).permit("n2") == PermitResult(Status.success())
    assert host.attempt(make_pod("web", labels={"gang": "1"})).permit("n2").wait_timeout_s == 3


def test_pre_bind_applies_patches_until_the_plugin_returns_none(host: PluginHost) -> None:
    attempt = host.attempt(make_pod("web"))
    assert attempt.pre_bind_pre_flight("n2").status.is_success
    assert attempt.pre_bind("n2") == PreBindResult(Status.success())
    assert attempt.pod.annotations == {"node": "n2"}
    claim = host.get_object(CLAIMS, "data", "default")
    assert claim is not None
    assert (claim.get("metadata.annotations.node"), claim.get("metadata.resourceVersion")) == ("n2", "5")


def test_pre_bind_answer_of_reserve_is_used_once() -> None:
    class AsksToWait(Plugin):
        def reserve(self, state: Any, pod: Pod, node_name: str) -> ReserveResult:
            return ReserveResult(Status.success(), PreBindResult(Status.success(), ask_again_after_s=1.0))

        def pre_bind(self, state: Any, pod: Pod, node_name: str, patched: Any) -> Status:
            return Status.success()

    attempt = PluginHost(AsksToWait).attempt(make_pod("web"))
    attempt.reserve("n1")
    assert attempt.pre_bind("n1").ask_again_after_s == 1.0
    assert attempt.pre_bind("n1") == PreBindResult(Status.success())


@pytest.mark.parametrize(("name", "due"), [("pre_bind", "PreBindResult"), ("pre_flight", "PreFlightResult")])
def test_invalid_pre_bind_answer_of_reserve_raises_at_reserve(name: str, due: str) -> None:
    class Slips(Plugin):
        def reserve(self, state: Any, pod: Pod, node_name: str) -> ReserveResult:
            early: dict[str, Any] = {name: Status.success()}
            return ReserveResult(Status.success(), **early)

        def pre_bind(self, state: Any, pod: Pod, node_name: str, patched: Any) -> Status:
            return Status.success()

    with pytest.raises(PluginAnswerError, match=f"whose {name} is Status.*: answer a {due} there"):
        PluginHost(Slips).attempt(make_pod("web")).reserve("n1")


def test_pre_flight_answer_of_reserve_replaces_the_call() -> None:
    class Knows(Plugin):
        def reserve(self, state: Any, pod: Pod, node_name: str) -> ReserveResult:
            patch = ObjectPatch(
                resource="pods", ref=pod.ref, merge_patch={"metadata": {"annotations": {"at": node_name}}}
            )
            status = Status.unschedulable("full") if node_name == "n2" else Status.success()
            return ReserveResult(
                status, PreBindResult(Status.success(), (patch,)), PreFlightResult(Status.skip())
            )

        def pre_bind(self, state: Any, pod: Pod, node_name: str, patched: Any) -> Status:
            return Status.error(",".join(item.outcome.name for item in patched))

    attempt = PluginHost(Knows).attempt(make_pod("web"))
    assert attempt.reserve("n1").is_success
    assert attempt.pre_bind_pre_flight("n1").status == Status.skip()
    assert attempt.pre_bind("n1").status.message == "APPLIED"
    assert attempt.pod.annotations == {"at": "n1"}
    assert attempt.reserve("n2").message == "full"
    assert attempt.pre_bind_pre_flight("n2").status.is_success
    assert attempt.pre_bind("n2").status.message == ""


def test_a_patch_of_another_version_is_a_conflict(host: PluginHost) -> None:
    attempt = host.attempt(make_pod("web", labels={"expect": "3"}))
    assert attempt.pre_bind("n2").status.message == "CONFLICT"
    assert [result.outcome for result in attempt.patched] == [PatchOutcome.APPLIED, PatchOutcome.CONFLICT]


def test_error_names_a_plugin_whose_pre_bind_never_ends() -> None:
    class Restless(Plugin):
        def pre_bind(self, state: Any, pod: Pod, node_name: str, patched: Any) -> PreBindResult:
            patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch={})
            return PreBindResult(Status.success(), (patch,))

    with pytest.raises(PluginAnswerError, match=r"Restless\.pre_bind still asks for patches after 64 rounds"):
        PluginHost(Restless).attempt(make_pod("web")).pre_bind("n1")


def test_bind_and_post_bind_call_the_plugin(host: PluginHost) -> None:
    attempt = host.attempt(make_pod("web"))
    assert attempt.bind("n2").host_binds
    attempt.post_bind("n2")
    assert [(event.reason, event.note) for event in host.handle.events] == [("Bound", "n2")]


def test_queue_methods_call_the_plugin(host: PluginHost) -> None:
    assert host.pre_enqueue(make_pod("web", labels={"gated": "1"})).message == "gated"
    low, high = make_pod("low"), make_pod("high", priority=9)
    assert host.order([low, high]) == [high, low]
    event = ClusterEvent(resource="Node", action="add")
    assert [host.hint(event, pod) for pod in (low, high)] == [False, True]


def test_order_uses_less_of_the_plugin() -> None:
    class ByName(Plugin):
        def less(self, first: QueuedPod, second: QueuedPod) -> bool:
            return first.pod.name < second.pod.name

    pods = [make_pod(name) for name in "cab"]
    assert [pod.name for pod in PluginHost(ByName).order(pods)] == ["a", "b", "c"]


# --- what goes wrong -------------------------------------------------------------------------------


def test_none_from_a_point_that_must_decide_is_an_error() -> None:
    class Silent(Plugin):
        def reserve(self, state: Any, pod: Pod, node_name: str) -> None:
            return None

    with pytest.raises(PluginAnswerError, match=r"Silent\.reserve returned None"):
        PluginHost(Silent).attempt(make_pod("web")).reserve("n1")


def test_a_score_out_of_range_is_an_error() -> None:
    class Proud(Plugin):
        def score(self, state: Any, pod: Pod, node: Any) -> int:
            return 101

    with pytest.raises(PluginAnswerError, match="scores node n1 with 101"):
        PluginHost(Proud, nodes=[make_node("n1")]).attempt(make_pod("web")).score()


def test_bad_arguments_and_bad_classes_are_refused_as_by_a_host() -> None:
    with pytest.raises(PluginArgsError):
        PluginHost(Example, {"limit": -1})
    with pytest.raises(PluginDefinitionError):
        PluginHost(type("Nothing", (Plugin,), {}))


def test_exception_of_the_plugin_reaches_the_test() -> None:
    class Broken(Plugin):
        async def filter(self, state: Any, pod: Pod, node: Any) -> None:
            raise LookupError("no price list")

    with pytest.raises(LookupError, match="no price list"):
        PluginHost(Broken, nodes=[make_node("n1")]).attempt(make_pod("web")).filter()


# --- the handle ------------------------------------------------------------------------------------


def test_handle_reads_the_cluster_and_records_calls(host: PluginHost) -> None:
    handle = host.handle
    assert handle.snapshot().names == ["n1", "n2", "n3"]
    assert [item.ref.name for item in handle.objects(CLAIMS).list()] == ["data"]
    with pytest.raises(UndeclaredError, match=r"add Need\.objects\('secrets'\)"):
        handle.objects("secrets")
    pod = make_pod("web")
    end_s = host.clock.now_s + 9
    waiting = WaitingPod(
        pod=pod, cycle_id="c1", node_name="n1", pending_plugins=("Example",), deadline_s=end_s
    )
    handle.hold(waiting)
    assert handle.waiting_pods(only_mine=True) == [waiting]
    assert (handle.allow(waiting), handle.allow(waiting)) == (Decision.APPLIED, Decision.ALREADY_DECIDED)
    handle.in_pre_bind[pod.uid] = "c1"
    asked = [handle.cancel_binding(pod, cycle_id=cycle_id).name for cycle_id in ("c2", "c1", "c1")]
    assert (asked, handle.cancelled) == (["STALE_CYCLE", "CANCELLED", "NOT_IN_PRE_BIND"], [pod.uid])
    assert handle.requeue([pod], reason="quota") == 1
    handle.invalidate_sort_keys()
    assert (handle.allowed, handle.requeues[0].reason, handle.stale_keys) == ([pod.uid], "quota", [None])


def test_handle_records_nominations_and_returns_the_scores_of_the_test(host: PluginHost) -> None:
    handle, pod = host.handle, make_pod("web")
    asked = [handle.nominate(pod, name).name for name in ("n1", "nowhere")]
    assert asked == ["APPLIED", "UNKNOWN_NODE"]
    assert [(item.pod, item.node_name) for item in handle.list_nominated_pods()] == [(pod, "n1")]
    assert (len(handle.list_nominated_pods(["n1"])), handle.list_nominated_pods([])) == (1, [])
    assert (handle.nominate(pod, "").name, handle.nominated) == ("APPLIED", {})
    assert handle.nominate(pod.on_node("n1"), "n1").name == "NOT_PENDING"
    handle.totals["n1"] = 7
    assert handle.run_scores(CycleState("c1"), ["n2", "n1"]).totals.tolist() == [0, 7]
    with pytest.raises(HandleError, match="'nowhere' is not in the snapshot"):
        handle.run_scores(CycleState("c1"), ["nowhere"])


# --- the way of a pod ------------------------------------------------------------------------------


class Waits(Plugin):
    """Holds the pod for three seconds, and releases what it reserved."""

    reserved = 0

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.reserved += 1
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.reserved -= 1

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult.wait(3)


class Allows(Plugin):
    """Permits every pod."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.success()


class Raises(Plugin):
    """Raises at Reserve."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        raise LookupError("no price list")


def test_pod_held_at_permit_is_a_waiting_pod_until_its_timeout() -> None:
    host = PluginHost(Waits)
    attempt = host.attempt(make_pod("web"))
    attempt.permit("n1")
    (waiting,) = host.handle.waiting_pods(only_mine=True)
    assert (waiting.pod.name, waiting.node_name, waiting.deadline_s) == ("web", "n1", host.clock.now_s + 3)
    host.advance(2)
    assert attempt.wait_on_permit().code is Code.WAIT
    host.advance(1)
    assert attempt.wait_on_permit().message == "rejected due to timeout after waiting 3s at plugin Waits"
    assert (host.handle.waiting_pods(), host.handle.allow(waiting)) == ([], Decision.ALREADY_DECIDED)
    attempt.unreserve("n1")
    assert host.handle.allow(waiting) is Decision.NOT_WAITING


def test_decision_about_an_earlier_cycle_of_the_pod_is_stale() -> None:
    host, pod = PluginHost(Waits), make_pod("web")
    host.attempt(pod).permit("n1")
    (earlier,) = host.handle.waiting
    later = host.attempt(pod)
    later.permit("n1")
    assert (host.handle.allow(earlier), host.handle.reject(earlier)) == (Decision.STALE_CYCLE,) * 2
    assert (later.wait_on_permit().code, host.handle.allowed, host.handle.rejected) == (Code.WAIT, [], [])


def test_plugin_ends_only_the_waits_that_it_may_end() -> None:
    host = PluginHost(Waits, beside=[Allows])
    handle = host.handles["Allows"]
    host.attempt(make_pod("web")).place("n1")
    (waiting,) = handle.waiting
    handle.may_end = frozenset()
    assert (handle.allow(waiting, "Waits"), handle.reject(waiting)) == (Decision.NOT_PERMITTED,) * 2
    handle.may_end = frozenset({"Waits"})
    assert (handle.allow(waiting, "Waits"), handle.waiting) == (Decision.APPLIED, ())


def test_placed_pod_counts_on_its_node_until_it_fails() -> None:
    host = PluginHost(Waits, nodes=[make_node("n1")])
    attempt = host.attempt(make_pod("web"))
    assert (attempt.outcome, attempt.place("n1").code) == (None, Code.WAIT)
    assert [len(node.pods) for node in host.table()] == [1]
    with pytest.raises(ValueError, match="default/web is being placed already"):
        attempt.place("n1")
    host.advance(3)
    assert attempt.outcome is not None
    assert attempt.outcome.message == "rejected due to timeout after waiting 3s at plugin Waits"
    assert ([len(node.pods) for node in host.table()], host.runtime.plugin.reserved) == ([0], 0)  # type: ignore[attr-defined]
    assert attempt.place("n1").code is Code.WAIT


def test_exception_in_place_is_raised_after_every_unreserve() -> None:
    host = PluginHost(Waits, beside=[Raises])
    attempt = host.attempt(make_pod("web"))
    with pytest.raises(LookupError, match="no price list"):
        attempt.place("n1")
    assert attempt.outcome == Status.error("LookupError: no price list")
    assert host.runtime.plugin.reserved == 0  # type: ignore[attr-defined]


def test_advance_refuses_a_negative_time() -> None:
    with pytest.raises(ValueError, match="time cannot go back by 1 s"):
        PluginHost(Waits).advance(-1)


# --- the rules of the host -------------------------------------------------------------------------


@given(st.lists(st.integers(-(10**9), 10**9), max_size=20), st.sampled_from(list(ScoreNormalization)))
def test_normalisation_is_the_hosts(raw: list[int], how: ScoreNormalization) -> None:
    scores = np.asarray(raw, dtype=np.int64)
    if how is not ScoreNormalization.RPC:
        assert normalized(scores, how).tolist() == normalize(how, scores).tolist()


def test_plugin_host_loads_neither_grpc_nor_the_host() -> None:
    code = (
        "import sys, berth_sdk.testing;"
        "print([name for name in ('grpc', 'google.protobuf', 'berth_host') if name in sys.modules])"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stdout.strip() == "[]"


class ReadsWhenMade(Plugin):
    """Keeps the reader of its objects, and their number, from `__init__` on."""

    needs = (Need.objects("persistentvolumeclaims"),)

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.claims = handle.objects("persistentvolumeclaims")
        self.count = len(self.claims.list())

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Say both numbers."""
        return Status.unschedulable(f"{self.count} then {len(self.claims.list())}")


def claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "shop"},
    }


def test_plugin_may_take_its_object_reader_in_init() -> None:
    host = PluginHost(
        ReadsWhenMade, nodes=[make_node("n1")], objects={"persistentvolumeclaims": [claim("data")]}
    )
    host.put_object("persistentvolumeclaims", claim("more"))
    assert host.attempt(make_pod("web")).filter()["n1"].message == "0 then 2"


def test_objects_that_no_plugin_declares_are_refused_with_the_need() -> None:
    with pytest.raises(KeyError, match=r"declares Need\.objects\('secrets'\) in `needs`"):
        PluginHost(ReadsWhenMade, objects={"secrets": [claim("x")]})


def test_two_plugins_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two plugins are named ReadsWhenMade"):
        PluginHost(ReadsWhenMade, beside=[ReadsWhenMade])


def test_place_refuses_an_unknown_node() -> None:
    host = PluginHost(ReadsWhenMade, nodes=[make_node("n1")])
    with pytest.raises(KeyError, match="the cluster has no node n2"):
        host.attempt(make_pod("web")).place("n2")


class ReadsSnapshotWhenMade(Plugin):
    """Reads the nodes in `__init__`."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        handle.snapshot()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> None:
        """Let every node pass."""


def test_snapshot_cannot_be_read_in_init() -> None:
    with pytest.raises(HandleError, match="read it in a call, not in __init__"):
        PluginHost(ReadsSnapshotWhenMade, nodes=[make_node("n1")])


def test_close_calls_every_plugin_once_the_last_one_first() -> None:
    closed: list[str] = []

    class First(Plugin):
        def filter(self, state: CycleState, pod: Pod, node: NodeView) -> None:
            return None

        def close(self) -> None:
            closed.append("First")

    class Second(First):
        async def close(self) -> None:  # type: ignore[override]  # a class has either form
            closed.append("Second")

    host = PluginHost(First, beside=[Second])
    host.close()
    host.close()
    assert closed == ["Second", "First"]


def test_exception_of_close_reaches_the_test() -> None:
    class Stuck(Plugin):
        def filter(self, state: CycleState, pod: Pod, node: NodeView) -> None:
            return None

        def close(self) -> None:
            raise RuntimeError("stuck")

    with pytest.raises(RuntimeError, match="stuck"):
        PluginHost(Stuck).close()


def test_exception_of_close_leaves_no_other_plugin_open() -> None:
    closed: list[str] = []

    class First(Plugin):
        def filter(self, state: CycleState, pod: Pod, node: NodeView) -> None:
            return None

        def close(self) -> None:
            closed.append("First")

    class Second(First):
        def close(self) -> None:
            raise RuntimeError("stuck")

    class Third(First):
        def close(self) -> None:
            raise ValueError("stuck too")

    with pytest.raises(RuntimeError, match="stuck"):
        PluginHost(First, beside=[Second]).close()
    assert closed == ["First"]
    with pytest.raises(ExceptionGroup, match="several plugins") as caught:
        PluginHost(First, beside=[Second, Third]).close()
    assert [str(err) for err in caught.value.exceptions] == ["stuck too", "stuck"]
    assert closed == ["First", "First"]
