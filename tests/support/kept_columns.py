"""A cluster that moves, and plugins that share columns: in the host, and on a synchronised copy.

The state machine of `tests/host/rpc/test_kept_answers.py`: after any sequence of events, what long-lived
runtimes answer equals what new ones answer on a snapshot built anew. Real parts throughout: cache, snapshot,
change log, delta codec, the SDK's copy, the default plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import numpy as np
from berth_host.attempt.cycle import Cycle
from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.framework.framework import Framework, all_rows
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.framework.score_table import ScoreTable, WeightedPlugin
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.model.clock import ManualClock
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY
from berth_host.rpc.client import PluginClient
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.route import LocalRoute
from berth_host.rpc.state_codec import StateEncoder
from berth_plugins.image_locality import ImageLocality
from berth_plugins.node_affinity import NodeAffinity
from berth_plugins.node_name import NodeName
from berth_plugins.node_ports import NodePorts
from berth_plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_plugins.node_unschedulable import NodeUnschedulable
from berth_plugins.taint_toleration import TaintToleration
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, ExtensionPoint, NoConcern, Plugin, ScoreNormalization
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.selection import StateSelection
from berth_sdk.serve.state_copy import StateCopy, Taken
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable, NodeView, StateVersion
from berth_sdk.testing import make_node, make_pod
from berth_sdk.wire import records as wire
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from numpy.typing import NDArray
from support.relays import PROFILE, Facts

T = TypeVar("T")
SERVICES = "services"
NEEDS = (
    Need(kind=NeedKind.NODE_SUMMARY, images=True, annotation_prefixes=("",)),
    Need.pods(annotation_prefixes=("",)),
    Need.objects(SERVICES),
    # NodeResourcesFit leaves to others what a device class serves.
    Need.objects("resource.k8s.io/deviceclasses"),
)


class Spread(Plugin):
    """TABLE: reads pods on other nodes."""

    depends_on: DependsOn | None = DependsOn.TABLE
    needs: Sequence[Need] = (Need.nodes(), Need.pods(label_prefixes=("app",)))

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        counts = self._counts(pod, nodes)
        return Verdicts.reject_where(
            counts > self._counts(pod, nodes.whole).min(initial=9), Status.unschedulable("skew")
        )

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return len(nodes.pods) * 10 - self._counts(pod, nodes)

    def _counts(self, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        codes, values = nodes.pods.label("app")
        alike = nodes.pods.node_index[codes == values.find(pod.labels.get("app", ""))]
        total = np.bincount(alike, minlength=int(nodes.slots.max(initial=0)) + 1)
        counts: NDArray[np.int64] = total.astype(np.int64)[nodes.slots]
        return counts


class ServedLabels(Plugin):
    """TABLE: reads objects beside the tables, node by node."""

    depends_on: DependsOn | None = DependsOn.TABLE
    needs: Sequence[Need] = (Need.nodes(), Need.objects(SERVICES))

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status | None:
        served = [item.get("spec.zone") for item in self.handle.objects(SERVICES).list()]
        return Status.unschedulable(f"{served} here") if node.labels.get("zone") in served else None


class Neighbours(Plugin):
    """ROW, node by node: names and priorities of the pods on the node."""

    depends_on: DependsOn | None = DependsOn.ROW
    needs: Sequence[Need] = (Need.nodes(), Need.pods(label_prefixes=("app",)))

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status | None:
        names = [f"{other.name}={other.labels.get('app')}" for other in node.pods]
        return Status.unresolvable(f"beside {names}") if len(names) > 1 else None

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        return sum(other.priority for other in node.pods) + pod.priority


class Heights(Plugin):
    """NODE, table style, signed: an annotation of the pod, labels and allocatable of nodes."""

    depends_on: DependsOn | None = DependsOn.NODE
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        return pod.annotations.get("avoid", "?")

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(
            nodes.has_label("zone", pod.annotations.get("avoid", "?")), Status.pending("no")
        )

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return nodes.allocatable("cpu") // 1000


class Licences(Plugin):
    """TABLE, with SKIPs that follow from the objects: the services say which pods it concerns."""

    depends_on: DependsOn | None = DependsOn.TABLE
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX
    needs: Sequence[Need] = (Need.nodes(), Need.pods(), Need.objects(SERVICES))

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        services = len(self.handle.objects(SERVICES).list())
        skips_filter, skips_score = 2 * services == pod.priority, services < 2 and not pod.priority
        if skips_filter and skips_score:
            return NoConcern.CYCLE
        if skips_filter or skips_score:
            return NoConcern.FILTER if skips_filter else NoConcern.SCORE, (pod.priority, services)
        return pod.priority, services

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        most = 2 * len(self.handle.objects(SERVICES).list()) - pod.priority
        state.write("most", most)
        return Status.success() if most else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        rejected = nodes.pod_count + len(nodes.whole.pods) > state.get("most", 9)
        return Verdicts.reject_where(rejected, Status.unschedulable("no licence"))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        few = len(self.handle.objects(SERVICES).list()) < 2 and not pod.priority
        return Status.skip() if few else Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return nodes.pod_count + len(nodes.whole.pods)


class Porter(Plugin):
    """Leaves Filter of most pods alone, and signs so; counts pods for all."""

    depends_on: DependsOn | None = DependsOn.TABLE
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        return pod.priority or (NoConcern.FILTER, 0)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return Status.success() if pod.priority else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.pod_count > 1 + pod.priority, Status.unschedulable("full"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return nodes.pod_count + pod.priority


class Landlord(Plugin):
    """Leaves most pods alone for good, and has no PreScore to say so."""

    depends_on: DependsOn | None = DependsOn.TABLE
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        return pod.priority or NoConcern.CYCLE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return Status.success() if pod.priority else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.pod_count > 2, Status.unschedulable("let"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return nodes.pod_count * (1 if pod.priority else 0)


class Undeclared(Plugin):
    """Goes by what nobody sees, and declares no `depends_on`."""

    height: ClassVar[int] = 0

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        low = nodes.allocatable("cpu") < 1000 * self.height
        return Verdicts.reject_where(low, Status.unschedulable("low"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return np.full(len(nodes), self.height)


CLASSES: tuple[type, ...] = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    Spread,
    ServedLabels,
    Neighbours,
    Heights,
    Licences,
    Porter,
    Landlord,
    Undeclared,
)
# What a row shows of images is what it saw when it was last copied, as in kube-scheduler: a snapshot built
# anew may show other numbers, with or without shared columns.
HISTORY_MATTERS = (ImageLocality,)

NODES = (
    make_node("x", cpu=4, memory="8Gi", pods=3, labels={"zone": "a"}),
    make_node(
        "x", cpu=2, memory="4Gi", pods=2, labels={"zone": "b", "disk": "ssd"}, taints=["t=1:NoSchedule"]
    ),
    make_node(
        "x", cpu=8, memory="8Gi", pods=9, taints=["u=1:PreferNoSchedule"], images={"web:v1": 900 << 20}
    ),
    make_node("x", cpu=1, memory="2Gi", pods=1, labels={"zone": "a"}, unschedulable=True),
    make_node("x", cpu=4, memory="8Gi", pods=4, images={"web:v1": 900 << 20, "db:v1": 100 << 20}),
)
PLACED = (
    make_pod("p", cpu="500m", memory="1Gi", labels={"app": "web"}),
    make_pod("p", cpu=1, host_ports=[80], labels={"app": "db"}, priority=7),
    make_pod("p", memory="3Gi", labels={"app": "web"}),
)
PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
        ]
    }
}
WAITING = (
    make_pod("w0", cpu="500m", memory="1Gi", images=["web:v1"], labels={"app": "web"}),
    make_pod("w1", cpu="500m", memory="1Gi", images=["web:v1"], labels={"app": "db"}),
    make_pod("w2", cpu=1, host_ports=[80], tolerations=["t"], images=["db:v1"]),
    make_pod("w3", cpu="500m", memory="1Gi", images=["web:v1"], labels={"app": "web"}, node="n1"),
    make_pod("w4", node_selector={"zone": "a"}, annotations={"avoid": "b"}, priority=3),
    make_pod("w5", node_selector={"zone": "a"}, annotations={"avoid": "a"}, priority=3),
    make_pod("w6", affinity=PREFERRED, tolerations=["node.kubernetes.io/unschedulable", "u"]),
)


class Asked:
    """One instance of each plugin. `sharing` False: every answer is the plugin's own, nothing is kept."""

    def __init__(self, objects: Callable[[str], ObjectReader], *, sharing: bool = True) -> None:
        handle: Any = SimpleNamespace(objects=objects)
        self.runtimes = {cls: PluginRuntime(make_plugin(cls, {}, handle), handle=handle) for cls in CLASSES}
        if not sharing:
            for runtime in self.runtimes.values():
                runtime.kept.verdicts = runtime.kept.scores = None

    def answers(self, cls: type, pod: Pod, nodes: NodeTable) -> dict[str, Any]:
        """By node name: the verdict, and the score where the node passed."""
        runtime: Any = self.runtimes[cls]
        state = CycleState("c", plugin=cls.__name__)
        points = {point.config_name for point in runtime.descriptor.points}
        names = nodes.names
        passed = list(range(len(nodes)))
        found: dict[str, Any] = {}
        skipped = False
        if "preFilter" in points:
            before = runtime.pre_filter(state, pod, nodes.whole)
            skipped = before.status.code is Code.SKIP
        if "filter" in points and not skipped:
            verdicts = runtime.filter(state, pod, nodes).verdicts.to_list()
            found = {name: (verdict,) for name, verdict in zip(names, verdicts, strict=True)}
            passed = [row for row, verdict in enumerate(verdicts) if verdict.is_success]
        if "score" in points and passed:
            left = nodes.take(passed)
            if runtime.pre_score(state, pod, left).code is Code.SUCCESS:
                scores = runtime.score(state, pod, left).tolist()
                for name, score in zip(left.names, scores, strict=True):
                    found[name] = (*found.get(name, ()), score)
        return found


class AskedByHost:
    """The same through the host's framework, each plugin alone and then all of them together: it keeps what
    equal pods share.
    """

    def __init__(self, objects: Callable[[str], ObjectReader]) -> None:
        handle: Any = SimpleNamespace(objects=objects)
        clients = [
            PluginClient(
                cls.__name__,
                PROFILE,
                LocalRoute(
                    InProcessTransport(
                        PluginRuntime(make_plugin(cls, {}, handle), handle=handle, keeps_rows=False)
                    )
                ),
                Facts(),
            )
            for cls in CLASSES
        ]
        self.frameworks = [_framework([client]) for client in clients]
        self.frameworks.append(_framework(clients))

    def answers(self, pod: Pod, nodes: NodeTable) -> list[dict[str, Any]]:
        """Per framework by node name: the verdict, and all scores where the node passed."""
        return [_answers(framework, pod, nodes) for framework in self.frameworks]


def _framework(clients: Sequence[PluginClient]) -> Framework:
    by_point = {
        point: [
            WeightedPlugin(client, weight)
            for weight, client in enumerate(clients, start=1)
            if point in client.points
        ]
        for point in ExtensionPoint
    }
    answers = KeepAnswers(by_point)
    return Framework(PROFILE, by_point, WaitingPods(ManualClock()), answers=answers)


def _answers(framework: Framework, pod: Pod, candidates: NodeTable) -> dict[str, Any]:
    nodes = candidates.whole
    cycle = Cycle("c", pod, PROFILE, nodes=nodes)
    statuses = NodeStatuses(nodes)
    rows = all_rows(nodes) if candidates.is_whole else np.searchsorted(nodes.slots, candidates.slots)
    assert _now(framework.run_pre_filter(cycle)).status.is_success
    passed = _now(framework.run_filter(cycle, statuses, rows, NOBODY))
    found: dict[str, Any] = {
        name: [statuses.statuses[group]]
        for name, group in zip(nodes.names, statuses.groups.tolist(), strict=True)
    }
    left = nodes if len(passed) == len(nodes) else nodes.take(passed)
    if len(left):
        table = _now(framework.run_score(cycle, left))
        assert isinstance(table, ScoreTable)
        for row, name in enumerate(left.names):
            found[name].append(table.total.item(row))
            for item in table.plugins:
                found[name].append((item.plugin, item.raw.item(row), item.normalized.item(row)))
        found[""] = [*table.skipped, *(left.name(row) for row in table.best().tolist())]
    return found


def _now(answer: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        answer.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a plugin in the host made its client wait")


class KeptColumnsMachine(RuleBasedStateMachine):
    """`in_host`, `by_host` and `on_copy` live as long as the machine; every answer of theirs is compared."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = ObjectStores()
        self.cache = Cache(self.objects.generations)
        self.snapshot = Snapshot(self.objects)
        self.log = ChangeLog(self.snapshot)
        self.encoder = StateEncoder(StateSelection.of(NEEDS))
        self.copy = StateCopy(NEEDS)
        self.held: StateVersion | None = None
        self.snapshot.confirmed_generation = lambda: self.held.generation if self.held else 0
        self.in_host = Asked(self.objects.of_resource)
        self.by_host = AskedByHost(self.objects.of_resource)
        self.on_copy = Asked(self.copy.objects)
        self.placed: dict[str, Pod] = {}
        Undeclared.height = 0
        for number in range(3):
            self.cache.add_node(replace(NODES[number], name=f"n{number}"))

    # --- events ----------------------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES), number=st.integers(0, 4))
    def node_comes_or_changes(self, node: Node, number: int) -> None:
        self.cache.add_node(replace(node, name=f"n{number}"))

    @rule(number=st.integers(0, 4), again=st.sampled_from((None, *NODES)))
    def node_goes_and_another_may_take_its_name(self, number: int, again: Node | None) -> None:
        info = self.cache.node_info(f"n{number}")
        if info is None or info.node is None:
            return
        self.cache.remove_node(info.name)
        if again is not None:
            self.cache.add_node(replace(again, name=info.name, uid="another"))

    @rule(
        pod=st.sampled_from(PLACED),
        uid=st.sampled_from("abcd"),
        number=st.integers(0, 4),
        bound=st.booleans(),
    )
    def pod_is_assumed_bound_or_changed(self, pod: Pod, uid: str, number: int, bound: bool) -> None:
        known = self.placed.get(uid)
        node_name = f"n{number}" if known is None or self.cache.is_assumed(uid) else known.node_name
        pod = replace(pod, name=uid, uid=uid, node_name=node_name)
        if known is None:
            (self.cache.add_pod if bound else self.cache.assume)(pod)
        elif self.cache.is_assumed(uid):
            self.cache.add_pod(pod)
        else:
            self.cache.update_pod(known, pod)
        self.placed[uid] = pod

    @rule(uid=st.sampled_from("abcd"))
    def pod_is_forgotten_or_deleted(self, uid: str) -> None:
        pod = self.placed.pop(uid, None)
        if pod is not None:
            (self.cache.forget if self.cache.is_assumed(uid) else self.cache.remove_pod)(pod)

    @rule(name=st.sampled_from("st"), zone=st.sampled_from(("a", "b", None)))
    def object_comes_changes_or_goes(self, name: str, zone: str | None) -> None:
        if zone is None:
            self.objects.remove("Service", ObjectRef(name=name, namespace="default"))
            return
        raw = {"metadata": {"name": name, "namespace": "default"}, "spec": {"zone": zone}}
        self.objects.put("Service", KubeObject("v1", "Service", parsed=raw))

    @rule(height=st.integers(0, 4))
    def what_nobody_sees_changes(self, height: int) -> None:
        Undeclared.height = height

    @rule()
    def copy_starts_anew(self) -> None:
        """The host knows it, and sends everything; the plugins live on."""
        self.held = None

    @rule()
    def snapshot_moves_between_cycles(self) -> None:
        self.snapshot.update(self.cache)

    # --- the law -----------------------------------------------------------------------------------

    @rule(pod=st.sampled_from(WAITING), mask=st.integers(0, 31), lagging=st.booleans())
    def cycle(self, pod: Pod, mask: int, lagging: bool) -> None:
        """Shared columns answer as a new plugin does on a snapshot built anew.

        `mask`: the candidates; 0: all of them. `lagging`: the copy misses this version.
        """
        self.snapshot.update(self.cache)
        if not lagging:
            self._bring_copy_up_to_date()
        anew = Snapshot(self.objects)
        anew.update(self.cache)
        sent = wire.decode_pod(
            pb.PodSummary.FromString(wire.encode_pod(pod).SerializeToString()), item=pod.object
        )
        host = _candidates(self.snapshot.nodes, mask)
        assert self.by_host.answers(pod, host) == AskedByHost(self.objects.of_resource).answers(pod, host)
        for cls in CLASSES:
            got = self.in_host.answers(cls, pod, host)
            assert got == Asked(self.objects.of_resource, sharing=False).answers(cls, pod, host), cls.__name__
            if cls not in HISTORY_MATTERS:
                fresh = Asked(self.objects.of_resource, sharing=False)
                assert got == fresh.answers(cls, pod, _candidates(anew.nodes, mask)), cls.__name__
            if not lagging:
                copy = _candidates(self.copy.nodes, mask)
                theirs = self.on_copy.answers(cls, sent, copy)
                own = Asked(self.copy.objects, sharing=False)
                assert theirs == own.answers(cls, sent, copy), cls.__name__
                if cls not in HISTORY_MATTERS:
                    assert theirs == got, cls.__name__

    def cycles(self, pod: Pod) -> None:
        """Enough pods that are the same for everything to be kept that can be."""
        for _ in range(3):
            self.cycle(pod, 0, lagging=False)

    def _bring_copy_up_to_date(self) -> None:
        changes = self.log.changes_since(self.held, self.encoder.selection)
        if changes is None:
            changes = self.log.changes_since(None, self.encoder.selection)
        assert changes is not None
        if self.copy.version == self.log.version and self.held is not None:
            return
        if self.held is None:
            self.copy.version = None
        delta = pb.StateDelta.FromString(self.encoder.delta(changes).SerializeToString())
        assert self.copy.apply(delta) is Taken.APPLIED
        self.held = self.copy.version


def _candidates(nodes: NodeTable, mask: int) -> NodeTable:
    """Return the nodes whose name's number is in `mask`."""
    if not mask:
        return nodes
    return nodes.take([row for row, name in enumerate(nodes.names) if mask >> int(name[1:]) & 1])
