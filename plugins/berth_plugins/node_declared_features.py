"""NodeDeclaredFeatures: the kubelet features that a pod's spec needs, against the nodes' declared features ->
verdict.

Called at PreFilter and Filter. There is one column of booleans per known feature. A pod that needs no feature
is skipped.

Source: KEP-5328; `pkg/scheduler/framework/plugins/nodedeclaredfeatures/nodedeclaredfeatures.go` and
`component-helpers/nodedeclaredfeatures/features`, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import DependsOn, NoConcern, NodeColumn, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable

from berth_plugins.objects.of_events import as_node, as_pod, spec_of

REASON: Final = Status.unresolvable("node(s) didn't match Pod's required features")
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES: Final = "UserNamespacesHostNetworkSupport"
_REQUIRED: Final = "required features"


def _restarts_all_containers(spec: Mapping[str, Any]) -> bool:
    return any(
        rule.get("action") == "RestartAllContainers"
        for container in _containers(spec)
        for rule in container.get("restartPolicyRules") or ()
    )


def _maps_users_of_host_network(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("hostNetwork")) and spec.get("hostUsers") is False


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


class NodeDeclaredFeatures(Plugin):
    """Rejects nodes that do not declare a feature that the pod needs from its kubelet."""

    features: ClassVar[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
        RESTART_ALL: _restarts_all_containers,
        USER_NAMESPACES: _maps_users_of_host_network,
    }
    """The features that a node may declare and a new pod can need, each with a test of a pod's spec. Other
    features matter to running pods only, or to no pod.
    """
    needs: Sequence[Need] = (
        Need.whole_pod(
            (
                "containers.restartPolicyRules",
                "hostNetwork",
                "hostUsers",
                "initContainers.restartPolicyRules",
            )
        ),
        Need.nodes(),
    )
    depends_on: DependsOn | None = DependsOn.NODE
    reads: Sequence[NodeColumn] | None = (NodeColumn.DECLARED_FEATURES,)
    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("add", "update.declaredFeatures"), Hint.ASK_PLUGIN),
        EventInterest(TARGET_POD, ("update",), Hint.ASK_PLUGIN),
    )

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the needed features."""
        return self.required_features(spec_of(pod)) or NoConcern.CYCLE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return SKIP for a pod that every kubelet can run."""
        required = self.required_features(spec_of(pod))
        if not required:
            return Status.skip()
        state.write(_REQUIRED, required)
        return Status.success()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Return unresolvable where a needed feature is missing."""
        verdicts = Verdicts.feasible(len(nodes))
        for name in state.get_or_make(_REQUIRED, lambda: self.required_features(spec_of(pod))):
            verdicts = verdicts.otherwise(~nodes.declares_feature(name), REASON)
        return verdicts

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return the needed features."""
        return self.sign_spec(pod)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if a node was added or changed its features, or the pod itself changed its needed
        features.
        """
        if event.resource == "Node":
            if event.old is None:
                return True
            return as_node(event.old).declared_features != as_node(event.new).declared_features
        new = as_pod(event.new)
        if new.uid != pod.uid:
            return False
        return self.required_features(spec_of(as_pod(event.old))) != self.required_features(spec_of(new))

    @classmethod
    def required_features(cls, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the features that a pod with `spec` needs and that matter to scheduling."""
        return tuple(name for name, needs in cls.features.items() if needs(spec))
