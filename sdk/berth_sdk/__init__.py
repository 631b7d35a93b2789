"""berth's SDK: write a Kubernetes scheduling plugin as one small class.

Read `berth_sdk.extension_points` first: it names every extension point, its question and its answers. The
names that an author needs can be imported from here; `berth_sdk.serve.server` serves plugins,
`berth_sdk.testing` tests them. The SDK depends on grpcio, protobuf and numpy, and on nothing of the host.
"""

from berth_sdk import sort_keys
from berth_sdk.cycle_state import Cloneable, CycleState, StateNotFoundError
from berth_sdk.errors import (
    BerthError,
    HandleError,
    ObjectError,
    PluginAnswerError,
    PluginArgsError,
    PluginDefinitionError,
    QuantityError,
    SelectorError,
    StaleStateError,
    UndeclaredError,
)
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import (
    DependsOn,
    ExtensionPoint,
    NoConcern,
    NodeMode,
    Plugin,
    PodSensitivity,
    ScoreNormalization,
)
from berth_sdk.handle import Handle, ObjectReader
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need
from berth_sdk.node import Node, NodeImage, Taint
from berth_sdk.pod import HostPort, OwnerRef, Pod, Toleration
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm
from berth_sdk.pod_fields import PodField
from berth_sdk.results import (
    BindResult,
    Cancellation,
    Decision,
    FilterResult,
    LiveReservation,
    NodeRejections,
    NodeScores,
    NominatedPod,
    Nomination,
    ObjectPatch,
    PatchAction,
    PatchOutcome,
    PatchResult,
    PermitResult,
    PluginNodeScores,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
    ReserveResult,
    WaitingPod,
)
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.selected_pods import SelectedPods
from berth_sdk.status import MAX_NODE_SCORE, MIN_NODE_SCORE, Code, Status, Verdicts
from berth_sdk.tables import NodeTable, NodeUsage, NodeView, PodChanges, PodCounts, PodsWith, PodTable, Tally

__all__ = [
    "MAX_NODE_SCORE",
    "MIN_NODE_SCORE",
    "BerthError",
    "BindResult",
    "Cancellation",
    "Cloneable",
    "ClusterEvent",
    "Code",
    "CycleState",
    "Decision",
    "DependsOn",
    "EventInterest",
    "ExtensionPoint",
    "FilterResult",
    "Handle",
    "HandleError",
    "Hint",
    "HostPort",
    "KubeObject",
    "LiveReservation",
    "Need",
    "NoConcern",
    "Node",
    "NodeImage",
    "NodeMode",
    "NodeRejections",
    "NodeScores",
    "NodeTable",
    "NodeUsage",
    "NodeView",
    "NominatedPod",
    "Nomination",
    "ObjectError",
    "ObjectPatch",
    "ObjectReader",
    "ObjectRef",
    "OwnerRef",
    "PatchAction",
    "PatchOutcome",
    "PatchResult",
    "PermitResult",
    "Plugin",
    "PluginAnswerError",
    "PluginArgsError",
    "PluginDefinitionError",
    "PluginNodeScores",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodChanges",
    "PodCounts",
    "PodField",
    "PodSensitivity",
    "PodTable",
    "PodsWith",
    "PostFilterResult",
    "PreBindResult",
    "PreFilterResult",
    "PreFlightResult",
    "QuantityError",
    "QueuedPod",
    "ReserveResult",
    "Scenario",
    "Scenarios",
    "ScoreNormalization",
    "SelectedPods",
    "SelectorError",
    "StaleStateError",
    "StateNotFoundError",
    "Status",
    "Taint",
    "Tally",
    "Toleration",
    "UndeclaredError",
    "Verdicts",
    "WaitingPod",
    "sort_keys",
]
