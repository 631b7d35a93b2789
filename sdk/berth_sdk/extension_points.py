"""Every extension point: when it is asked, its arguments, its answers. READ THIS FIRST.

A plugin is a plain class. It takes part in the points whose methods it has; nothing is declared
twice. The order in which one pod meets the points:

    PreEnqueue -> (QueueSort) -> PreFilter -> Filter -> [PostFilter, when no node is left]
      -> PreScore -> Score -> NormalizeScore -> Reserve -> Permit            the scheduling cycle, serial
      -> PreBindPreFlight -> WaitOnPermit -> PreBind -> Bind -> PostBind     the binding cycle, a task per pod
    Unreserve runs, in reverse order, whenever anything fails after Reserve began. A plugin that comes back
    after its process died hears first which reservations are alive (`reconcile`).

There are two ways to write Filter and Score: per node (`filter`, `score`), easy to write, and over the
table (`filter_nodes`, `score_nodes`), fast; the same class runs inside the host or behind gRPC. The rest
of a plugin's description are class attributes, listed in `Plugin`; all are optional.

    class AvoidSpot(Plugin):
        def filter(self, state, pod, node):
            if node.labels.get("pool") == "spot":
                return Status.unschedulable("node is a spot node")
            return Status.success()

Verdicts are values (`berth_sdk.status`); an exception means that the plugin broke, and the pod follows
the failure policy of the point. At Reserve, Permit, PreBind and Bind a decision is due: returning None
there is an error, elsewhere it reads as success. Methods may be `async def`. Plain methods of the
scheduling cycle run one at a time per plugin, those of the binding cycle in `max_concurrency` threads.

Source: KEP-624; kube-scheduler `framework/interface.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.results import (
    BindResult,
    FilterResult,
    LiveReservation,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
    ReserveResult,
)
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, NodeView

T = TypeVar("T")
Answer: TypeAlias = T | Awaitable[T]


class ExtensionPoint(IntEnum):
    """The points by the contract's numbers; 14 to 19 are kept for pod groups."""

    PRE_ENQUEUE = 1
    QUEUE_SORT = 2
    PRE_FILTER = 3
    FILTER = 4
    POST_FILTER = 5
    PRE_SCORE = 6
    SCORE = 7
    NORMALIZE_SCORE = 8
    RESERVE = 9
    PERMIT = 10
    PRE_BIND = 11
    BIND = 12
    POST_BIND = 13

    @property
    def config_name(self) -> str:
        """The spelling of KubeSchedulerConfiguration, such as `preBind`."""
        head, *rest = self.name.lower().split("_")
        return head + "".join(word.title() for word in rest)


METHODS: Final[Mapping[ExtensionPoint, tuple[str, ...]]] = {
    ExtensionPoint.PRE_ENQUEUE: ("pre_enqueue",),
    ExtensionPoint.QUEUE_SORT: ("sort_key", "less"),
    ExtensionPoint.PRE_FILTER: ("pre_filter",),
    ExtensionPoint.FILTER: ("filter_nodes", "filter"),
    ExtensionPoint.POST_FILTER: ("post_filter",),
    ExtensionPoint.PRE_SCORE: ("pre_score",),
    ExtensionPoint.SCORE: ("score_nodes", "score"),
    ExtensionPoint.NORMALIZE_SCORE: ("normalize",),
    ExtensionPoint.RESERVE: ("reserve", "unreserve"),
    ExtensionPoint.PERMIT: ("permit",),
    ExtensionPoint.PRE_BIND: ("pre_bind",),
    ExtensionPoint.BIND: ("bind",),
    ExtensionPoint.POST_BIND: ("post_bind",),
}
"""The methods of each point; a class with any of them takes part in it."""


class ScoreNormalization(Enum):
    """How raw scores become 0..100 (the contract's numbers)."""

    PLUGIN = 1
    """The plugin answers final scores, computed over all candidates together."""
    HOST_MAX = 2
    """score * 100 / max, truncated; all zero stays zero."""
    HOST_MAX_REVERSED = 3
    """100 - score * 100 / max; all zero becomes 100."""
    HOST_MIN_MAX = 4
    """100.0 * ((score - min) / (max - min)), truncated; all equal becomes 0."""
    RPC = 5
    """The plugin's `normalize` is called."""
    NONE = 6
    """Final scores that do not depend on the other candidates."""


class NodeMode(Enum):
    """SNAPSHOT: the plugin reads node data from the tables. NAMES: candidates are names, nothing else."""

    NAMES = 1
    SNAPSHOT = 2


class PodSensitivity(Enum):
    """Can this plugin's Filter change when pods on nodes change? Asked by every what-if."""

    NONE = 1
    """No: it is left out of what-ifs."""
    NODE = 2
    """Only pods on the same node matter."""
    CLUSTER = 3
    """Pods on other nodes matter too (affinity, spreading)."""


class DependsOn(Enum):
    """The objects that one row of an answer to Filter and Score depends on, beside the pod's wishes: while
    these stand still, pods with equal wishes (`berth_sdk.signature`) share the answer. An object of the
    declared `needs` that changes makes every answer stale, and so does a call of `handle.requeue`.
    """

    NODE = 1
    """The Node object alone: labels, taints, allocatable. Pods that come and go change nothing."""
    ROW = 2
    """The node and the pods on it."""
    TABLE = 3
    """Other nodes too, the number of nodes, pods elsewhere."""
    NODES = 5
    """All Node objects: how many nodes there are, what the other nodes offer. Pods that come and go change
    nothing."""
    OTHER = 4
    """State that the tables do not show: the plugin's own memory, the time, the pod's name, what other
    plugins published, a service. Verdicts and scores are never shared; a SKIP that `sign` answers
    (`NoConcern`) is.
    """


class Plugin:
    """Base class with the defaults of the descriptor; deriving from it is a convenience, not a duty.

    `__init__(self, args, handle)` gets the plugin's arguments (`pluginConfig[].args`, parsed) and its
    `Handle`. Raise PluginArgsError for arguments that make no sense.
    """

    name: ClassVar[str] = ""
    """The name in configurations; empty: the class's name."""
    version: ClassVar[str] = ""
    """The plugin's own version, for people."""
    needs: ClassVar[Sequence[Need]] = (Need.nodes(),)
    """Data at hand beside the pod's summary: the whole pod with each call, and the contents of its copy of
    the cluster, which `handle.objects` reads.
    """
    node_mode: ClassVar[NodeMode | None] = None
    """None: SNAPSHOT for a class with a method that is handed nodes (PreFilter to Score), NAMES for others,
    which by default need no nodes either.
    """
    pod_sensitivity: ClassVar[PodSensitivity | None] = None
    """None: NONE for a class without Filter, else as `depends_on` says: NONE with NODE and NODES, NODE with
    ROW, CLUSTER with TABLE and OTHER.
    """
    normalization: ClassVar[ScoreNormalization | None] = None
    """None: RPC for a class with `normalize`, NONE for one whose `score` is asked about one node after the
    other and that has no `pre_score`, else PLUGIN.
    """
    answers_early: ClassVar[bool | None] = None
    """In a process of its own: answer Filter with PreFilter, and Score with PreScore, and with PreFilter and
    Filter too where the normalization is NONE or HOST_*. So a pod costs one round trip up to Score.

    None: as long as that takes less than about 1 ms of a call, and less the fewer of the pods are bound; the
    log says each time that this changes. True: as long as the call is no older than 50 ms. False: never, as
    for a class whose PreScore skips or stores values by the candidates that it is shown. With `reads_shared`:
    never.
    """
    reads_shared: ClassVar[Sequence[str]] = ()
    """Shared cycle-state keys (`<plugin>/<key>`) that it reads."""
    events: ClassVar[Sequence[EventInterest] | None] = None
    """Changes that can help a pod it rejected; None: any change. An empty list: none."""
    deadlines: ClassVar[Mapping[str, float]] = {}
    """Wishes in seconds by point, spelled as in the configuration (`preBind`); the host clamps them."""
    max_concurrency: ClassVar[int] = 0
    """Binding-cycle calls at once; 0: the host decides."""
    depends_on: ClassVar[DependsOn | None] = None
    """None: no answer is kept from one pod to the next, at any point, and `sign`, `sign_spec`, `sign_queue`
    and `sign_fields` have no effect. With NODE, ROW, NODES and TABLE Filter and Score leave nothing in the
    cycle's state: they may not be called at all. With the first three the same holds for PreFilter and
    PreScore of a class that has no later point: their answers and state follow from the pod's wishes and the
    Node objects, not from the pods on them nor from the nodes that PreScore is handed, and are taken over
    from the cycle of an equal pod until a Node object changes.
    """
    handle_required: ClassVar[bool | None] = None
    """True: the plugin does not work where its `handle` cannot call the host, so a host without a way back
    refuses the plugin. None: True for a class whose own code calls the host, as with `handle.allow` or
    `handle.requeue`. Reads of the local copy (`handle.objects`, `handle.snapshot`) do not count.
    """
    sign_fields: ClassVar[Sequence[PodField] | None] = None
    """All of a pod that its answers follow from, in place of the methods `sign` and `sign_queue`, which say
    more where there are some. None: all of the pod's wishes. The host of a served plugin is told only these:
    it asks `queueing_hint` about one of the waiting pods that are equal in them.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.args = args
        self.handle = handle


# --- the queue -------------------------------------------------------------------------------------


class PreEnqueuePlugin(Protocol):
    """Asked before a pod may enter activeQ or backoffQ. A rejected pod is gated: it waits in the
    unschedulable pool until an event that the plugin registered, or an update of the pod itself.
    """

    def pre_enqueue(self, pod: QueuedPod) -> Answer[Status | None]:
        """Success lets the pod in. Must be fast and must not read the snapshot."""
        ...


class QueueSortPlugin(Protocol):
    """Orders the queue; exactly one per profile, the same in all profiles. Have one of the two."""

    def sort_key(self, pod: QueuedPod) -> Answer[bytes]:
        """At most 256 bytes that order pods bytewise, smallest first (`berth_sdk.sort_keys`).

        Asked when the pod enters, changes or comes back. Empty: the fallback order.
        """
        ...


class LessPlugin(Protocol):
    """In process only: a comparison that cannot be written as a key."""

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        """True when `first` is to be scheduled before `second`."""
        ...


class EventsPlugin(Protocol):
    """A plugin whose `events` hold interests with `Hint.ASK_PLUGIN`."""

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> Answer[bool]:
        """True when `event` may make `pod`, which this plugin rejected, schedulable. An exception
        counts as True.
        """
        ...


class QueueSigningPlugin(Protocol):
    """For a class that tells waiting pods apart by less than all of their wishes."""

    def sign_queue(self, pod: Pod) -> Hashable:
        """The key by which `pre_enqueue` and `queueing_hint` tell pods apart, the first beside
        `victims_pending`, the second beside whether the event is about the pod itself: while nothing else
        happens, one answer holds for all pods with equal signatures. Follows from the pod and the plugin's
        arguments alone. A hint that matches the event's object against the pod's labels signs the labels.

        Without this method `Plugin.sign_fields` count, and without these all of the pod's wishes
        (`berth_sdk.signature.wishes`), unless `depends_on` is OTHER. A class that declares no `depends_on` is
        asked about every pod.
        """
        ...


# --- the scheduling cycle --------------------------------------------------------------------------


class PreFilterPlugin(Protocol):
    """Once per cycle, before Filter, over all nodes."""

    def pre_filter(
        self, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Answer[PreFilterResult | Status | None]:
        """SKIP: this plugin has nothing to check for the pod, its Filter is not called.
        UNSCHEDULABLE_AND_UNRESOLVABLE ends the cycle at once; UNSCHEDULABLE lets the other PreFilters
        run, so that preemption has their state. PENDING is an error here.
        """
        ...


class NoConcern(Enum):
    """The answer of `sign` when a pod does not concern the plugin, or the first part of a pair whose
    second part is the signature of the rest.
    """

    CYCLE = 1
    """For the whole cycle: PreFilter and PreScore would answer SKIP, and Score 0 everywhere, no matter what
    changes. No later point is asked about the pod but PostFilter. It takes a `pre_filter` that answers SKIP:
    a class without one is asked later all the same.
    """
    FILTER = 2
    """PreFilter would answer SKIP, no matter what changes."""
    SCORE = 3
    """PreScore would answer SKIP, no matter what changes."""

    # Members are compared by identity; Enum's own hash costs more than all else of a signature.
    __hash__ = object.__hash__


class SigningPlugin(Protocol):
    """For a class that shares its answers (`depends_on`): which pods are the same to it."""

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """A value that decides the answers from PreFilter to Score, beside the objects of `depends_on`: pods
        with equal signatures get the same answers. Cluster state may be part of it, such as the terms of
        other pods that mean this one. Called in every cycle, so it must cost next to nothing; it may not hold
        the pod.

        Without this method and `sign_spec` the `Plugin.sign_fields` count, and without these all of the
        pod's wishes (`berth_sdk.signature.wishes`).
        """
        ...


class SpecSigningPlugin(Protocol):
    """In place of `sign`, for a class that goes by the pod's spec alone."""

    def sign_spec(self, pod: Pod) -> Hashable:
        """As `sign`, and cheaper: asked once for all pods with the same spec. Its answer follows from the
        plugin's arguments and the pod's spec alone, never from the pod's metadata, status or node, nor from
        anything that changes.
        """
        ...


class PreFilterExtensions(Protocol):
    """Optional, for a per-node plugin whose `pre_filter` counts pods: keeps its state right in what-ifs."""

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeView) -> Status | None:
        """`added` is now also on `node`. `state` is a clone that this what-if alone uses."""
        ...

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeView) -> Status | None:
        """`removed` is no longer on `node`."""
        ...


class FilterPlugin(Protocol):
    """Can the pod run there? Asked about the nodes that earlier plugins left; elsewhere also about a few that
    plugins in the host judge at the same time.
    """

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Answer[Status | None]:
        """One node. SUCCESS, or a rejection; any other code is an error and ends the cycle."""
        ...


class TableFilterPlugin(Protocol):
    """Filter over all candidates at once."""

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Answer[Verdicts | FilterResult | Status | None]:
        """Verdicts for the n rows of `nodes`; a bare Status holds for all."""
        ...


class ScenarioFilterPlugin(Protocol):
    """Filter for "what if": each row of `scenarios.nodes` with pods removed and added.

    Without this method the SDK derives the answer: `filter_nodes` over `scenarios.nodes`, whose usage
    columns show the changed pods; for a per-node plugin a clone of the state, add_pod and remove_pod, then
    `filter`. Write it when verdicts depend on pods beyond the usage columns.
    """

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Answer[Verdicts]:
        """One verdict per scenario. Each is absolute against the cycle's snapshot."""
        ...


class PostFilterPlugin(Protocol):
    """When no node is left: can something be done? Preemption is the typical answer."""

    def post_filter(
        self, state: CycleState, pod: Pod, rejections: NodeRejections
    ) -> Answer[PostFilterResult | Status | None]:
        """SUCCESS with a nominated node (and victims) ends the search; UNSCHEDULABLE: no help, the next
        plugin is asked; None reads as UNSCHEDULABLE.
        """
        ...


class PreScorePlugin(Protocol):
    """Once per cycle, before Score, over the feasible nodes."""

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status | None]:
        """SKIP: this plugin adds nothing for this pod, its Score is not called."""
        ...


class ScorePlugin(Protocol):
    """How good is a feasible node? Not called when one node alone is feasible.

    In the host, a class that shares its answers (`depends_on`) and has passed a node itself may be asked
    while a Filter in another process still judges that node.
    """

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> Answer[int | Status]:
        """One node: 0..100 after normalisation, higher is better. A Status that is no SUCCESS ends the
        attempt with its reasons; so does an exception, with its place in the code.
        """
        ...


class TableScorePlugin(Protocol):
    """Score over all candidates at once."""

    def score_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Answer[NDArray[np.int64] | Status]:
        """int64[n], in the order of `nodes`. A Status that is no SUCCESS ends the attempt."""
        ...


class NormalizeScorePlugin(Protocol):
    """The second step of Score, where the plugin itself normalises."""

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> Answer[NDArray[np.int64] | Status]:
        """int64[n] in 0..100, from this plugin's raw scores. A Status that is no SUCCESS ends the attempt."""
        ...


class ReservePlugin(Protocol):
    """Told that the pod gets the node, before it is bound; undone by `unreserve`."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[ReserveResult | Status]:
        """SUCCESS, or a rejection that ends the cycle. `state.token` survives a restart. A `ReserveResult`
        may answer PreBind at once, where it is known by now.
        """
        ...

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[None]:
        """Idempotent; also called where `reserve` never ran. Must not fail."""
        ...


class ReconcilePlugin(Protocol):
    """Optional beside `reserve` or `permit`: a plugin that was restarted, or cut off, takes up its
    reservations."""

    def reconcile(self, live: Sequence[LiveReservation]) -> Answer[Sequence[LiveReservation] | None]:
        """These reservations and waits are alive, and no others. Called before the first cycle of every
        attachment, and in process, where nothing can be alive yet, before the very first cycle. Reservations
        that this process remembers and the list lacks were given back by `unreserve` just before; state kept
        elsewhere is released here.

        Returns the reservations that it cannot take up (None: it has them all); their pods are tried again.
        Without this method a reservation is taken up where the process remembers it, or where it has a token,
        and a wait of a plugin that only permits is taken up always. An exception: asked again, and no cycle
        comes before that.
        """
        ...


class PermitPlugin(Protocol):
    """The last word of the scheduling cycle: approve, deny, or hold the pod for a while."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Answer[PermitResult | Status]:
        """SUCCESS, a rejection, or `PermitResult.wait(timeout_s)`; decide later with
        `handle.allow` or `handle.reject`, even before this call has returned.
        """
        ...


# --- the binding cycle -----------------------------------------------------------------------------


class PreBindPreFlightPlugin(Protocol):
    """Optional beside `pre_bind`: will it do anything for this pod?"""

    def pre_bind_pre_flight(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> Answer[PreFlightResult | Status | None]:
        """SUCCESS or SKIP (`pre_bind` is not called), and whether it may run beside others."""
        ...


class PreBindPlugin(Protocol):
    """Work that must be done before the pod is bound, such as preparing a volume."""

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> Answer[PreBindResult | Status]:
        """SUCCESS when satisfied. `patches` are applied by the host, which calls again with their
        results in `patched` (empty at the first call); one deadline covers all rounds. The first call is
        spared where `reserve` has answered it. When the pod is deleted between two calls, the host calls at
        once, a last time, with `state.pod_deleted`; when the pod is deleted during a call, that call is
        cancelled.
        """
        ...


class BindPlugin(Protocol):
    """Binds the pod. Asked in order until one does not SKIP."""

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Answer[BindResult | Status]:
        """SUCCESS with `host_binds=True` lets the host post the Binding; without, it is done already."""
        ...


class PostBindPlugin(Protocol):
    """Told, after the fact, that the pod is bound."""

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> Answer[None]:
        """Informational; an exception is logged: by the host, or by the server of a served plugin, which does
        not tell the host.
        """
        ...


def name_of(cls: type) -> str:
    """The plugin's name: its `name` attribute, or the class's own name."""
    return str(getattr(cls, "name", "") or cls.__name__)


def points_of(cls: type) -> tuple[ExtensionPoint, ...]:
    """The extension points that the class's methods make it take part in, in cycle order."""
    return tuple(
        point
        for point, methods in METHODS.items()
        if any(callable(getattr(cls, method, None)) for method in methods)
    )
