"""Two equal clusters, the default plugins in both: in one they are asked about everything, in the other what
they said is recalled.

The state machine of `tests/host/framework/test_recall.py`: after any sequence of events the two say the same
of every pod: verdicts, reasons, scores, who skips, the best nodes, and why no node fits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from berth_host.app.alone import FrameworkAlone
from berth_host.framework.filtering import filter_error
from berth_host.framework.framework import all_rows
from berth_host.framework.nominated import NOBODY, NominatedPods
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}


def _node(name: str, **fields: Any) -> Node:
    return make_node(name, **{"cpu": 4, "memory": "8Gi", "pods": 9, **fields})


NODES: Sequence[Mapping[str, Any]] = (
    {"labels": {ZONE: "a"}},
    {"labels": {ZONE: "b"}, "taints": ["t=1:NoSchedule"]},
    {"labels": {ZONE: "b"}, "cpu": 2, "images": {"web:v1": 900 << 20}},
    {"labels": {ZONE: "a"}, "unschedulable": True},
    {"taints": ["u=1:PreferNoSchedule"], "pods": 2},
)
_SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": WEB}
_HARD = {"topologySpreadConstraints": [{**_SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]}
_SOFT = {"topologySpreadConstraints": [{**_SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]}
_BY_KEY = {
    "topologySpreadConstraints": [
        {**_SPREAD, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["own"]}
    ]
}


def _affinity(kind: str, *, preferred: bool = False, **term: Any) -> dict[str, Any]:
    one = {"topologyKey": HOST, "labelSelector": WEB, **term}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    if preferred:
        key = "preferredDuringSchedulingIgnoredDuringExecution"
        return {"affinity": {kind: {key: [{"weight": 5, "podAffinityTerm": one}]}}}
    return {"affinity": {kind: {key: [one]}}}


SPECS: Sequence[Mapping[str, Any]] = (
    {},
    _HARD,
    _SOFT,
    _BY_KEY,
    _affinity("podAntiAffinity"),
    _affinity("podAntiAffinity", preferred=True),
    _affinity("podAffinity", topologyKey=ZONE),
    _affinity("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "x"}}),
    {"nodeSelector": {ZONE: "a"}},
    {"nodeName": "n1"},
    {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "gone"}}]},
)
LABELS: Sequence[Mapping[str, str]] = ({}, {"app": "web"}, {"app": "db"})
FIELDS: Sequence[Mapping[str, Any]] = (
    {"cpu": "500m"},
    {"cpu": 2, "memory": "1Gi"},
    {"cpu": "500m", "tolerations": ["t"], "images": ["web:v1"]},
    {"host_ports": [80], "priority": 7},
)
PODS = st.builds(
    lambda spec, labels, fields, own: make_pod(
        f"p{own}", spec=dict(spec), labels={**labels, "own": str(own)}, **fields
    ),
    st.sampled_from(SPECS),
    st.sampled_from(LABELS),
    st.sampled_from(FIELDS),
    st.integers(0, 5),
)


class RecallMachine(RuleBasedStateMachine):
    """Whatever happens, happens to both clusters."""

    def __init__(self) -> None:
        super().__init__()
        self.both = (FrameworkAlone(), FrameworkAlone(recall=False))
        self.placed: dict[str, Pod] = {}
        self.nominated: dict[str, Pod] = {}
        for number in range(3):
            self.node_comes_or_changes(NODES[number], number)

    # --- events ------------------------------------------------------------------------------------

    @rule(fields=st.sampled_from(NODES), number=st.integers(0, 4))
    def node_comes_or_changes(self, fields: Mapping[str, Any], number: int) -> None:
        labels = {**fields.get("labels", {}), HOST: f"n{number}"}
        for alone in self.both:
            alone.add_node(_node(f"n{number}", **{**fields, "labels": labels}))

    @rule(number=st.integers(0, 4))
    def node_goes(self, number: int) -> None:
        for alone in self.both:
            info = alone._cache.node_info(f"n{number}")
            if info is not None and info.node is not None:
                alone._cache.remove_node(f"n{number}")

    @rule(pod=PODS, uid=st.sampled_from("abcdef"), number=st.integers(0, 4))
    def pod_comes(self, pod: Pod, uid: str, number: int) -> None:
        if uid in self.placed:
            return
        placed = self.placed[uid] = replace(pod, name=uid, uid=uid, node_name=f"n{number}")
        for alone in self.both:
            alone._cache.add_pod(placed)

    @rule(uid=st.sampled_from("abcdef"), labels=st.sampled_from((*LABELS, None)))
    def pod_changes_or_goes(self, uid: str, labels: Mapping[str, str] | None) -> None:
        pod = self.placed.pop(uid, None)
        if pod is None:
            return
        changed = None if labels is None else replace(pod, labels=labels)
        for alone in self.both:
            if changed is None:
                alone._cache.remove_pod(pod)
            else:
                alone._cache.update_pod(pod, changed)
        if changed is not None:
            self.placed[uid] = changed

    @rule(team=st.sampled_from(("x", "y", None)))
    def namespace_changes(self, team: str | None) -> None:
        metadata = {"name": "default", "labels": {} if team is None else {"team": team}}
        self._put("Namespace", KubeObject("v1", "Namespace", parsed={"metadata": metadata}))

    @rule(app=st.sampled_from(("web", "db", None)))
    def service_comes_changes_or_goes(self, app: str | None) -> None:
        if app is None:
            for alone in self.both:
                alone.objects.remove("Service", ObjectRef(name="s", namespace="default"))
            return
        raw = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": app}}}
        self._put("Service", KubeObject("v1", "Service", parsed=raw))

    @rule(pod=PODS, number=st.integers(0, 4), stays=st.booleans())
    def nomination_comes_or_goes(self, pod: Pod, number: int, stays: bool) -> None:
        self.nominated.pop(f"n{number}", None)
        if stays:
            self.nominated[f"n{number}"] = replace(pod, name=f"at{number}", uid=f"at{number}")

    def _put(self, kind: str, item: KubeObject) -> None:
        for alone in self.both:
            alone.objects.put(kind, item)

    # --- the law -----------------------------------------------------------------------------------

    @rule(pod=PODS, times=st.integers(1, 3))
    def cycles(self, pod: Pod, times: int) -> None:
        for _ in range(times):
            recalled, asked = (asyncio.run(self._said(alone, pod)) for alone in self.both)
            assert recalled == asked

    async def _said(self, alone: FrameworkAlone, pod: Pod) -> dict[str, Any]:
        cycle, framework = alone.cycle(pod), alone.framework
        nodes = cycle.nodes
        outcome = await framework.run_pre_filter(cycle)
        said: dict[str, Any] = {"": (outcome.status, outcome.eligible, cycle.skip_filter, cycle.skip)}
        if not outcome.status.is_success or not len(nodes):
            return said
        names = set(nodes.names)
        here = {name: [other] for name, other in self.nominated.items() if name in names}
        nominated = NominatedPods.of(nodes, here) if here else NOBODY
        statuses = NodeStatuses(nodes)
        rows = all_rows(nodes)
        passed = await framework.run_filter(cycle, statuses, rows, nominated)
        said["error"] = filter_error(statuses, rows)
        said["verdicts"] = {name: statuses.status_of(name) for name in nodes.names}
        said["reasons"] = statuses.reasons()
        left = nodes if len(passed) == len(nodes) else nodes.take(passed)
        if len(left):
            table = await framework.run_score(cycle, left)
            if isinstance(table, Status):
                return {**said, "failed": table}
            said["total"], said["best"] = table.total.tolist(), table.best().tolist()
            said["skipped"] = sorted(table.skipped)
            said["scores"] = {
                one.plugin: (one.raw.tolist(), one.normalized.tolist()) for one in table.plugins
            }
        return said
