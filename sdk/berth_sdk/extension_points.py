"""Every extension point: when the host calls it, its arguments and its answers. READ THIS FIRST.

A plugin is a plain class. The class takes part in each extension point whose methods it has; no other
declaration is needed. The order of the points for one pod:

    PreEnqueue -> (QueueSort) -> PreFilter -> Filter -> [PostFilter, when no node is left]
      -> PreScore -> Score -> NormalizeScore -> Reserve -> Permit            the scheduling cycle, serial
      -> PreBindPreFlight -> WaitOnPermit -> PreBind -> Bind -> PostBind     the binding cycle, a task per pod

    Unreserve runs, in reverse order, whenever anything fails after Reserve began. After a restart, a plugin
    first gets the list of its live reservations (`reconcile`). `close` is the last call of an instance.

A group of pods (`spec.schedulingGroup`) has one cycle. The cycle tries placements, and in each placement the
members, one after the other, each as above from PreFilter to Reserve:

    PlacementGenerate -> for each placement: PlacementFeasible -> (a member -> PlacementFeasible) ...
      -> PlacementScore -> NormalizePlacementScore, when several placements are feasible
      -> [PodGroupPostFilter, when none is] -> for each member that has a node: Reserve -> Permit -> ...

Filter and Score have two forms: per node (`filter`, `score`), which is easy to write, and over the table of
nodes (`filter_nodes`, `score_nodes`), which is fast. The same class runs in the host's process or behind
gRPC. Optional class attributes, listed in `Plugin`, describe the rest of a plugin.

    class AvoidSpot(Plugin):
        def filter(self, state, pod, node):
            if node.labels.get("pool") == "spot":
                return Status.unschedulable("node is a spot node")
            return Status.success()

A verdict is a value (`berth_sdk.status`). An exception means that the plugin failed; the failure policy of
the extension point then decides about the pod. Reserve, Permit, PreBind and Bind must return a decision: None
is an error there, and SUCCESS at every other point. Methods may be `async def`. Plain methods of the
scheduling cycle run one at a time per plugin; plain methods of the binding cycle run in `max_concurrency`
threads.

Source: KEP-624; kube-scheduler `framework/interface.go`, v1.36, and v1.37 for groups of pods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress
from berth_sdk.results import (
    BindResult,
    FilterResult,
    LiveReservation,
    NodeRejections,
    PatchResult,
    PermitResult,
    PodGroupPostFilterResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
    ReserveResult,
    Tries,
)
from berth_sdk.scenarios import Scenarios
from berth_sdk.scope import Scope
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, NodeView

T = TypeVar("T")
Answer: TypeAlias = T | Awaitable[T]
Concerned: TypeAlias = Collection[Hashable] | Callable[[Any], bool] | None
"""Keys, or a function that returns True for a key; None: any. See NarrowingPlugin."""


class _Row(NamedTuple):
    number: int
    methods: tuple[str, ...]
    assembled: int
    part_of: tuple[Any, ...] | None


def _point(number: int, *methods: str, assembled: int = 0, part_of: tuple[Any, ...] | None = None) -> _Row:
    return _Row(number, methods, assembled, part_of)


class ExtensionPoint(IntEnum):
    """The one table of the extension points; the lists of the configuration, of the metrics and of the calls
    are derived from it. Those from 14 on are about groups of pods.
    """

    methods: tuple[str, ...]
    """The methods of the point. A class that has any of them takes part in the point."""
    assembled: int
    """The position at which kube-scheduler assembles a profile's plugins of this point; 0 for a point without
    a list of its own in KubeSchedulerConfiguration."""
    part_of_number: int

    PRE_ENQUEUE = _point(1, "pre_enqueue", assembled=11)
    QUEUE_SORT = _point(2, "sort_key", "less", assembled=12)
    PRE_FILTER = _point(3, "pre_filter", assembled=1)
    FILTER = _point(4, "filter_nodes", "filter", assembled=2)
    POST_FILTER = _point(5, "post_filter", assembled=3)
    PRE_SCORE = _point(6, "pre_score", assembled=5)
    SCORE = _point(7, "score_nodes", "score", assembled=6)
    NORMALIZE_SCORE = _point(8, "normalize", part_of=SCORE)
    RESERVE = _point(9, "reserve", "unreserve", assembled=4)
    PERMIT = _point(10, "permit", assembled=10)
    PRE_BIND = _point(11, "pre_bind", assembled=7)
    BIND = _point(12, "bind", assembled=8)
    POST_BIND = _point(13, "post_bind", assembled=9)
    PLACEMENT_GENERATE = _point(14, "placement_generate", assembled=13)
    PLACEMENT_SCORE = _point(15, "placement_score", assembled=14)
    NORMALIZE_PLACEMENT_SCORE = _point(16, "normalize_placements", part_of=PLACEMENT_SCORE)
    PLACEMENT_FEASIBLE = _point(17, "placement_feasible", assembled=15)
    POD_GROUP_POST_FILTER = _point(18, "pod_group_post_filter", assembled=16)

    def __new__(
        cls,
        number: int,
        methods: tuple[str, ...] = (),
        assembled: int = 0,
        part_of: tuple[Any, ...] | None = None,
    ) -> ExtensionPoint:
        """Make the point of a row. Its value is the number in the contract."""
        point = int.__new__(cls, number)
        point._value_ = number
        point.methods = methods
        point.assembled = assembled
        point.part_of_number = part_of[0] if part_of else 0
        return point

    @property
    def part_of(self) -> ExtensionPoint | None:
        """The point whose list enables the plugins of this one; None for most."""
        return ExtensionPoint(self.part_of_number) if self.part_of_number else None

    @cached_property
    def config_name(self) -> str:
        """The spelling in KubeSchedulerConfiguration, such as `preBind`."""
        return self.kube_name[0].lower() + self.kube_name[1:]

    @cached_property
    def kube_name(self) -> str:
        """The name in kube-scheduler's messages and metrics, such as `PreBind`; also that of the call."""
        return "".join(word.title() for word in self.name.split("_"))


METHODS: Final[Mapping[ExtensionPoint, tuple[str, ...]]] = {point: point.methods for point in ExtensionPoint}
"""The methods of each extension point."""


class ScoreNormalization(Enum):
    """The way from raw scores to 0..100. The numbers are the contract's."""

    PLUGIN = 1
    """The plugin returns final scores, computed over all candidates together."""
    HOST_MAX = 2
    """score * 100 / max, truncated; all zero stays zero."""
    HOST_MAX_REVERSED = 3
    """100 - score * 100 / max; all zero becomes 100."""
    HOST_MIN_MAX = 4
    """100.0 * ((score - min) / (max - min)), truncated; all equal becomes 0."""
    RPC = 5
    """The host calls the plugin's `normalize`."""
    NONE = 6
    """The plugin returns final scores that do not depend on the other candidates."""


class NodeMode(Enum):
    """The form in which a plugin gets nodes. SNAPSHOT: it reads node data from the tables. NAMES: it gets
    the candidates' names only.
    """

    NAMES = 1
    SNAPSHOT = 2


class PodSensitivity(Enum):
    """Which pods on nodes can change the plugin's Filter verdicts. Every what-if question reads this."""

    NONE = 1
    """No pods: what-if questions leave the plugin out."""
    NODE = 2
    """Only pods on the same node."""
    CLUSTER = 3
    """Pods on other nodes too (affinity, spreading)."""


class DependsOn(Enum):
    """The objects that one row of an answer to Filter and Score depends on, beside the pod's wishes.

    While these objects do not change, pods with equal wishes (`berth_sdk.signature`) share the answer. A
    change to an object of the declared `needs` makes every answer stale, and so does a call of
    `handle.requeue`.
    """

    NODE = 1
    """The Node object alone: labels, taints, allocatable. Pods added to or removed from nodes change nothing.
    """
    ROW = 2
    """The node and the pods on the node."""
    TABLE = 3
    """Other nodes too: their number, their objects, the pods on them."""
    NODES = 5
    """All Node objects: the number of nodes and what the other nodes offer. Pods added to or removed from
    nodes change nothing.
    """
    OTHER = 4
    """State that the tables do not show: the plugin's own memory, the time, the pod's name, values that other
    plugins published, a service. The host never shares verdicts and scores. The host does share a SKIP that
    `sign` returns (`NoConcern`).
    """


class Account(Enum):
    """The accounts that a plugin keeps as the host keeps them. The numbers are the contract's."""

    RESOURCES = 1
    """Filter compares the pod's requests with what the node has left. If nothing else rejects a node, `berth
    why` says what the node lacks. If others fill the chosen node before the Binding, the pod is tried again.
    """
    HOST_PORTS = 2
    """Filter compares the pod's host ports with those in use. If others take one before the Binding, the pod
    is tried again.
    """
    VOLUMES = 3
    """Filter, Reserve and PreBind find and write the volumes of the pod's claims. Their errors count in
    `scheduler_volume_scheduling_stage_error_total`.
    """
    DEVICES = 4
    """PreBind writes the pod into `status.reservedFor` of its ResourceClaims. If the attempt fails, the host
    takes the pod out again. It measures how long PreBind waits for the devices.
    """


class NodeColumn(Enum):
    """The parts of a node's row that a class may name in `reads`. The numbers are the contract's.

    In the host and in the SDK two rows are alike if they are equal in all columns that the class names. Pods
    on the node, images and the Node's JSON are in no column.
    """

    NAME = 1
    """metadata.name. No two nodes are alike in it."""
    LABELS = 2
    """metadata.labels, all of them. Nodes differ in kubernetes.io/hostname; name single labels by
    `NodeLabel`.
    """
    ANNOTATIONS = 3
    """metadata.annotations, all of them."""
    TAINTS = 4
    """spec.taints, in their order."""
    UNSCHEDULABLE = 5
    """spec.unschedulable."""
    ALLOCATABLE = 6
    """status.allocatable of all resources, `pods` included."""
    DECLARED_FEATURES = 7
    """status.declaredFeatures."""
    REQUESTED = 8
    """The requests of the pods on the node, of all resources. A resource that is absent equals 0."""
    NON_ZERO_REQUESTED = 9
    """The requests for cpu and memory with the defaults for containers that request nothing."""
    POD_COUNT = 10
    """The number of pods on the node."""
    HOST_PORTS = 11
    """The host ports in use."""


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """One label of a node, by its key, for `reads`."""

    key: str


COLUMNS_OF_PODS: Final = frozenset(
    {NodeColumn.REQUESTED, NodeColumn.NON_ZERO_REQUESTED, NodeColumn.POD_COUNT, NodeColumn.HOST_PORTS}
)
"""The columns that pods on the node change. A class that depends on NODE reads none of them."""


class Plugin:
    """Base class with the defaults of the plugin's descriptor. A plugin may derive from it, but need not.

    `__init__(self, args, handle)` gets the plugin's arguments (`pluginConfig[].args`, parsed) and its
    `Handle`. Raise PluginArgsError for invalid arguments. It may declare by its arguments: what it assigns to
    `self.needs`, `self.events`, `self.node_mode`, `self.pod_sensitivity`, `self.normalization`,
    `self.reads_shared`, `self.depends_on`, `self.reads`, `self.sign_fields`, `self.answers_early` or
    `self.scope` counts in place of the class's attribute. An empty list is refused there, as it may be a list
    of the author's own: `()` declares none. For a type checker, a class that sets an attribute in both places
    writes its type: `needs: Sequence[Need] = (Need.nodes(),)`.
    """

    name: ClassVar[str] = ""
    """The plugin's name in configurations. Empty: the class's name."""
    version: ClassVar[str] = ""
    """The plugin's own version, shown to people."""
    needs: Sequence[Need] = (Need.nodes(),)
    """The data that the plugin reads beside the pod's summary: the whole pod with each call, and the contents
    of the plugin's copy of the cluster, which `handle.objects` reads.
    """
    node_mode: NodeMode | None = None
    """None: SNAPSHOT for a class with a method that gets nodes (PreFilter to Score). NAMES for other classes,
    whose default `needs` have no nodes.
    """
    pod_sensitivity: PodSensitivity | None = None
    """None: NONE for a class without Filter. For other classes, `depends_on` decides: NODE and NODES give
    NONE, ROW gives NODE, TABLE and OTHER give CLUSTER.
    """
    normalization: ScoreNormalization | None = None
    """None: RPC for a class with `normalize`. NONE for a class with a per-node `score` and without
    `pre_score`. PLUGIN for every other class.
    """
    answers_early: bool | None = None
    """For a served plugin: PreFilter also answers Filter, and PreScore also answers Score. Where the
    normalization is NONE or HOST_*, PreFilter and Filter answer Score too. A pod then costs one round trip up
    to Score.

    None: the SDK answers early while the extra work takes less than about 1 ms of a call. The limit is lower
    when fewer of the pods are bound. The log reports each switch. True: always, while the call is no older
    than 50 ms. False: never; right for a class whose PreScore skips, or stores values, depending on the
    candidates. With `reads_shared`: never.
    """
    reads_shared: Sequence[str] = ()
    """The shared cycle-state keys (`<plugin>/<key>`) that the plugin reads."""
    events: Sequence[EventInterest] | None = None
    """The cluster events that can make a pod schedulable which this plugin rejected. None: any event. Empty:
    no event.
    """
    deadlines: ClassVar[Mapping[str, float]] = {}
    """Wished deadlines in seconds, by extension point, spelled as in the configuration (`preBind`). The host
    limits them.
    """
    max_concurrency: ClassVar[int] = 0
    """The number of binding-cycle calls at the same time. 0: the host decides."""
    depends_on: DependsOn | None = None
    """None: the host keeps no answer from one pod to the next, at any extension point, and `sign`,
    `sign_spec`, `sign_queue` and `sign_fields` have no effect.

    With NODE, ROW, NODES and TABLE, Filter and Score must store nothing in the cycle's state: the host may
    use a kept answer in place of the call. With NODE, ROW and NODES the same holds for PreFilter and
    PreScore of a class that has no later extension point. Their answers and state must follow from the pod's
    wishes and the Node objects alone, not from the pods on the nodes and not from the nodes that PreScore
    gets. The host reuses them for equal pods until a Node object changes.
    """
    reads: Sequence[NodeColumn | NodeLabel] | None = None
    """For a class that depends on NODE or ROW: all parts of a node's row that Filter and Score read. Nodes
    that are alike in these parts share the answer, so the class is asked about one of them. Empty: the
    answer is the same for all nodes. None: not declared; each row is asked about.

    `berth_sdk.testing.check_reads` names the column that a declaration lacks.
    """
    accounts: ClassVar[Sequence[Account]] = ()
    """What the plugin counts as the host counts it, so that the host can say and do what follows from its
    verdicts. A plugin in the place of NodeResourcesFit declares RESOURCES.
    """
    scope: Scope | Sequence[Scope] | None = None
    """The pods that the plugin concerns, as in `Scope(resources=("example.com/gpu",))`; of several, a pod is
    inside if it is in one of them. The host calls the plugin about no other pod, at any point, and such pods
    neither fail nor wait while the plugin is absent. None: every pod. Empty: no pod.

    The operator's `scope` narrows this one. What a cycle reserved is given back whatever the pod is by then.
    """
    handle_required: ClassVar[bool | None] = None
    """True: the plugin does not work where its `handle` cannot call the host, so a host without a way back
    refuses the plugin. None: True for a class whose own code calls the host, as with `handle.allow` or
    `handle.requeue`. Reads of the local copy (`handle.objects`, `handle.snapshot`) do not count.
    """
    sign_fields: Sequence[PodField] | None = None
    """All fields of a pod that the plugin's answers follow from. The methods `sign` and `sign_queue` take
    precedence for their calls. None: all of the pod's wishes. The host of a served plugin knows only these
    fields: it calls `queueing_hint` for one of the waiting pods that are equal in them. With `depends_on`
    NODE, ROW or NODES it keeps the answers from PreFilter to Score by them, unless the class has `sign`.
    """
    feasible_by_progress: ClassVar[bool] = False
    """True: the answers of `placement_feasible` follow from the group and the progress alone, whichever
    placement is tried. In a trial whose outcome is kept, the host then uses an answer about the same progress
    that the plugin gave in the cycle of the group. Has an effect in process.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.args = args
        self.handle = handle


# --- the queue -------------------------------------------------------------------------------------


class PreEnqueuePlugin(Protocol):
    """Called before a pod may enter activeQ or backoffQ. A rejected pod is gated: the pod waits in the
    unschedulable pods until an event that the plugin registered, or an update of the pod itself.
    """

    def pre_enqueue(self, pod: QueuedPod) -> Answer[Status | None]:
        """Return SUCCESS to let the pod in, or a rejection. Must be fast and must not read the snapshot."""
        ...


class QueueSortPlugin(Protocol):
    """Orders the queue. Every profile has exactly one, the same in all profiles. Write one of `sort_key` and
    `less`.

    The entries of the queue are pods and groups of pods. For a group, `pod.group` is set, the times are the
    group's, and `pod.pod` is the first member, with the priority of the group.
    """

    def sort_key(self, pod: QueuedPod) -> Answer[bytes]:
        """Return at most 256 bytes that order pods bytewise, smallest first (`berth_sdk.sort_keys`).

        Called when the pod enters the queue, changes or comes back. Empty: the fallback order.
        """
        ...


class LessPlugin(Protocol):
    """A comparison that cannot be written as a key. For in-process plugins only."""

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        """Return True when `first` is to be scheduled before `second`."""
        ...


class EventsPlugin(Protocol):
    """A plugin whose `events` hold interests with `Hint.ASK_PLUGIN`."""

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> Answer[bool]:
        """Return True when `event` may make `pod`, which this plugin rejected, schedulable. An exception
        counts as True.
        """
        ...


class QueueSigningPlugin(Protocol):
    """A plugin whose `pre_enqueue` and `queueing_hint` read only some parts of a pod."""

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return the key that decides the answers of `pre_enqueue` and `queueing_hint`.

        `pre_enqueue` may also depend on `victims_pending`, and `queueing_hint` on whether the event is about
        the pod itself. While nothing else happens, one answer holds for all pods with equal keys. The key
        must follow from the pod and the plugin's arguments alone. A hint that matches the event's object
        against the pod's labels puts the labels into the key.

        Without this method the key is `Plugin.sign_fields`. Without these fields the key is all of the pod's
        wishes (`berth_sdk.signature.wishes`), unless `depends_on` is OTHER. The host calls a class that
        declares no `depends_on` for every pod.
        """
        ...


class NarrowingPlugin(Protocol):
    """A plugin that says, before its hint is called for any pod, which waiting pods an event can help.

    The host calls `queueing_hint` for these pods alone: beside ten thousand waiting pods, an event about one
    claim costs as much as beside ten. The methods have no effect for served plugins, and for classes that do
    not sign their waiting pods (`QueueSigningPlugin`). Without `hint_keys` an event helps no pod, or any.
    """

    def hint_keys(self, pod: Pod) -> Collection[Hashable] | None:
        """Return what a rejected pod waits for, such as the names of its claims. None: unknown.

        The keys must follow from the key of `sign_queue`. An exception counts as None.
        """
        ...

    def pre_queueing_hint(self, event: ClusterEvent) -> Concerned:
        """Return the keys of the pods that `event` may help, or a function that is True for these keys.

        Empty: the event helps no pod. None: it may help any. `queueing_hint` would return False for all other
        pods with known keys, and for every pod if there is no key. The pod that the event is about is judged
        in any case. Called while pods wait, for events with `Hint.ASK_PLUGIN`. An exception counts as None.
        """
        ...


# --- the scheduling cycle --------------------------------------------------------------------------


class PreFilterPlugin(Protocol):
    """Called once per cycle, before Filter, over all nodes."""

    def pre_filter(
        self, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Answer[PreFilterResult | Status | None]:
        """Return SUCCESS, SKIP or a rejection, or a PreFilterResult that narrows the nodes.

        SKIP: this plugin has nothing to check for the pod; the host does not call its Filter.
        UNSCHEDULABLE_AND_UNRESOLVABLE ends the cycle at once. UNSCHEDULABLE lets the other PreFilters run, so
        that preemption has their state. PENDING is an error here.
        """
        ...


class NoConcern(Enum):
    """The answer of `sign` when a pod does not concern the plugin. It may also be the first part of a pair
    whose second part is the signature for the other calls.
    """

    CYCLE = 1
    """For the whole cycle: PreFilter and PreScore would return SKIP and Score 0 for every node, whatever
    changes. Of the later extension points, the host calls PostFilter only. The class needs a `pre_filter`
    that returns SKIP; the host calls a class without `pre_filter` at the later points all the same.
    """
    FILTER = 2
    """PreFilter would return SKIP, whatever changes."""
    SCORE = 3
    """PreScore would return SKIP, whatever changes."""
    NEUTRAL = 4
    """As CYCLE, but PreScore would return SUCCESS: the plugin counts as one that scored every node 0, instead
    of one that skipped Score.
    """

    # Members are compared by identity: Enum's own hash costs more than the rest of a signature.
    __hash__ = object.__hash__


class SigningPlugin(Protocol):
    """A plugin that shares its answers (`depends_on`) and decides which pods get the same answers."""

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return a value that decides the answers from PreFilter to Score, beside the objects of
        `depends_on`.

        Pods with equal values get the same answers. Cluster state may be part of the value, such as the terms
        of other pods that select this pod. Called in every cycle, so the method must be fast. The value must
        not hold a reference to the pod.

        Without this method and `sign_spec`, `Plugin.sign_fields` decide. Without these fields, all of the
        pod's wishes (`berth_sdk.signature.wishes`) decide.
        """
        ...


class SpecSigningPlugin(Protocol):
    """A plugin whose answers follow from the pod's spec alone, for all pods or for some."""

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the value that `sign` would return.

        Cheaper than `sign`: called once for all pods with the same spec. The value must follow from the
        plugin's arguments and the pod's spec alone, never from the pod's metadata, status or node, nor from
        anything that changes.

        In a class that also has `sign`, None means that the spec does not decide: `sign` is called for each
        pod with this spec. So a plugin says once per spec that pods without volumes do not concern it. A
        subclass that writes `sign` writes `sign_spec` too.
        """
        ...


class PreFilterExtensions(Protocol):
    """Optional, for a per-node plugin whose `pre_filter` counts pods: updates the plugin's state for what-if
    questions.
    """

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeView) -> Status | None:
        """Update `state` for a cluster in which `added` is also on `node`. `state` is a clone that no other
        what-if uses.
        """
        ...

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeView) -> Status | None:
        """Update `state` for a cluster in which `removed` is no longer on `node`."""
        ...


class FilterPlugin(Protocol):
    """Decides whether the pod can run on a node.

    Called for the nodes that earlier plugins passed. A served plugin may also be called for a few nodes that
    in-process plugins judge at the same time.
    """

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Answer[Status | None]:
        """Return the verdict on one node: SUCCESS or a rejection. Any other code is an error and ends the
        cycle.
        """
        ...


class TableFilterPlugin(Protocol):
    """Filter over all candidates at once."""

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Answer[Verdicts | FilterResult | Status | None]:
        """Return verdicts for the n rows of `nodes`. A bare Status holds for all rows."""
        ...


class ScenarioFilterPlugin(Protocol):
    """Filter for what-if questions: each row of `scenarios.nodes` has pods removed and added.

    Without this method the SDK derives the answer. For a table plugin, the SDK calls `filter_nodes` over
    `scenarios.nodes`, whose usage columns include the changed pods. For a per-node plugin, the SDK clones the
    state, calls add_pod and remove_pod, and then `filter`. Write this method when verdicts depend on pods
    beyond the usage columns.
    """

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Answer[Verdicts]:
        """Return one verdict per scenario. Each verdict is absolute against the cycle's snapshot.

        A node that an autoscaler would add is no scenario here: the host puts it into the snapshot, and calls
        PreFilter and Filter.
        """
        ...


class SensitiveFilterPlugin(Protocol):
    """Optional, for an in-process plugin whose Filter looks at pods on other nodes: tells which pods count.

    When a group of pods preempts, the host decides for each running pod whether it may stay. Without this
    method, the host calls Filter about every member for every one of these pods.
    """

    def sensitive_to(self, pod: Pod, other: Pod) -> bool:
        """Return False if `other` cannot change the verdict of Filter about `pod` on any node, neither by
        joining a node nor by leaving it.

        The answer must follow from the two pods, the plugin's arguments and the declared objects. Any other
        answer, and an exception, count as True.
        """
        ...


class PostFilterPlugin(Protocol):
    """Called when no node is left. Preemption is the typical plugin."""

    def post_filter(
        self, state: CycleState, pod: Pod, rejections: NodeRejections
    ) -> Answer[PostFilterResult | Status | None]:
        """Return SUCCESS with a nominated node (and victims), which ends the search, or UNSCHEDULABLE.

        UNSCHEDULABLE: no help; the host calls the next plugin. None reads as UNSCHEDULABLE.
        """
        ...


class PreScorePlugin(Protocol):
    """Called once per cycle, before Score, over the feasible nodes."""

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status | None]:
        """Prepare the scores. Return SKIP when this plugin adds nothing for this pod: the host does not call
        its Score.

        Reasons of a SUCCESS or a SKIP are shown by `berth why` and counted in `berth_plugin_remarks_total`:
        for nodes that cannot be scored, or a server that is away.
        """
        ...


class ScorePlugin(Protocol):
    """Rates the feasible nodes. Not called when only one node is feasible.

    An in-process class that shares its answers (`depends_on`) and has itself passed a node may be called for
    the node while the Filter of a served plugin still judges the node.
    """

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> Answer[int | Status]:
        """Return the score of one node: 0..100 after normalisation, higher is better.

        A Status other than SUCCESS ends the attempt with its reasons. An exception ends the attempt with its
        place in the code.
        """
        ...


class TableScorePlugin(Protocol):
    """Score over all candidates at once."""

    def score_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Answer[NDArray[np.int64] | Status]:
        """Return int64[n], in the order of `nodes`. A Status other than SUCCESS ends the attempt."""
        ...


class NormalizeScorePlugin(Protocol):
    """The second step of Score, for a plugin that normalises its own scores."""

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> Answer[NDArray[np.int64] | Status]:
        """Return int64[n] in 0..100, made from this plugin's raw scores. A Status other than SUCCESS ends the
        attempt.
        """
        ...


class ReservePlugin(Protocol):
    """Called when the host has chosen a node, before the pod is bound. `unreserve` undoes it."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[ReserveResult | Status]:
        """Reserve what the pod needs on the node. Return SUCCESS, or a rejection that ends the cycle.

        Return SKIP where the plugin holds nothing for this pod: the host then leaves out
        `pre_bind_pre_flight`, `pre_bind`, `unreserve` and `post_bind` in this cycle, and does not list the
        cycle in `reconcile`. `permit` is called all the same. If `permit` returns WAIT, the plugin holds the
        pod, and the cycle ends with `unreserve` or `post_bind`, as every other one.

        `state.token` survives a restart of the plugin. A `ReserveResult` may also carry the answer to
        PreBind, if the answer is known by now.

        In a group's cycle, `state.trial` says which trial the reservation belongs to. A tentative reservation
        counts for the later members of the same trial, and `unreserve` always ends it. The host then reserves
        again, with a new `state.cycle_id` and the same values in `state`, for each member that it binds. The
        snapshot has the members reserved before, and lacks this pod, as for a pod that is scheduled alone.
        """
        ...

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[None]:
        """Undo `reserve`. Must be idempotent and must not fail; also called where `reserve` never ran. Not
        called where `reserve` returned SKIP.
        """
        ...


class ReconcilePlugin(Protocol):
    """Optional beside `reserve` or `permit`: lets a plugin that was restarted, or lost its connection,
    restore its reservations.
    """

    def reconcile(self, live: Sequence[LiveReservation]) -> Answer[Sequence[LiveReservation] | None]:
        """Restore the live reservations and waits in `live`, and drop all others.

        Called before the first cycle of every attachment. In process, called before the very first cycle,
        when nothing can be live yet. For reservations that this process holds and the list lacks,
        `unreserve` was called just before; `post_bind` instead where an earlier host ended after it bound the
        pod, if the plugin has `Need.pods()`. Release state that is kept elsewhere here.

        Return the reservations that cannot be restored; None: there are none. The host tries their pods
        again. After an exception the host calls `reconcile` again, and no cycle runs before it succeeds.

        Without this method, a reservation counts as restored where this process holds it or where it has a
        token. A wait of a plugin that has only `permit` always counts as restored.
        """
        ...


class PermitPlugin(Protocol):
    """The last point of the scheduling cycle: approves, denies, or holds the pod for a while."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Answer[PermitResult | Status]:
        """Return SUCCESS, a rejection, or `PermitResult.wait(timeout_s)`.

        Decide about a held pod later with `handle.allow` or `handle.reject`, even before this call has
        returned.
        """
        ...


# --- the binding cycle -----------------------------------------------------------------------------


class PreBindPreFlightPlugin(Protocol):
    """Optional beside `pre_bind`: reports whether `pre_bind` has work to do for the pod."""

    def pre_bind_pre_flight(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> Answer[PreFlightResult | Status | None]:
        """Return SUCCESS, or SKIP when `pre_bind` need not be called, and whether `pre_bind` may run beside
        other plugins'.
        """
        ...


class PreBindPlugin(Protocol):
    """Work that must be done before the pod is bound, such as preparing a volume."""

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> Answer[PreBindResult | Status]:
        """Prepare the binding. Return SUCCESS when everything is ready.

        The host applies `patches` of the result and calls again with the outcomes in `patched`, which is
        empty at the first call. One deadline covers all rounds. Where `reserve` has given the first answer,
        the host skips the first call.

        When the pod is deleted between two calls, the host calls at once, a last time, with
        `state.pod_deleted`. When the pod is deleted during a call, the host cancels the call.
        """
        ...


class BindPlugin(Protocol):
    """Binds the pod. The host calls the plugins in order until one does not return SKIP."""

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Answer[BindResult | Status]:
        """Bind the pod to the node. Return SUCCESS with `host_binds=True` to let the host post the Binding;
        without `host_binds`, SUCCESS means that the plugin has bound the pod.
        """
        ...


class PostBindPlugin(Protocol):
    """Called after the pod is bound."""

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> Answer[None]:
        """React to the binding. An exception has no effect but a log line: the host logs it for an in-process
        plugin, the plugin's server for a served one.

        Called when every snapshot in use has the pod as it was bound, or when the pod is finished or gone. So
        what the plugin holds for the pod ends here, and what the pod shows on its node counts instead.
        """
        ...


# --- the end of an instance ------------------------------------------------------------------------


class ClosePlugin(Protocol):
    """Optional: a hook that runs when an instance stops."""

    def close(self) -> Answer[None]:
        """Release what the instance holds outside of its memory: connections, threads, files, leases.

        Called once for each instance, after its last call has ended. In process: when the host stops, when a
        new configuration replaces the host's plugins, and when the host does not start because another plugin
        cannot be made. Served: when the server stops (SIGTERM, SIGINT, the end of the host that started it,
        `--reload`), and when the host configures the plugin with other arguments, or no longer in this
        profile. A reservation keeps a replaced instance until the reservation ends.

        Not called when the process is killed, nor while a call of the instance has not ended. The handle may
        reach no host any more. The next instance is made before this one is closed, so `__init__` must not
        need what `close` gives back.

        A plain method runs in a thread of its own. Instances are closed at the same time. The host waits 5 s.
        A server waits for the rest of `berth-sdk serve --grace`, at least 1 s. Then they go on without the
        instance, with a warning in the log. An exception is logged with the plugin's name, and has no other
        effect.
        """
        ...


# --- groups of pods ----------------------------------------------------------------------------------
#
# `state` is the group's (placement_generate, normalize_placements, pod_group_post_filter) or that of the
# placement. A pod's state of the same cycle reaches both: `state.group` and `state.placement`.


class PlacementGeneratePlugin(Protocol):
    """Divides the nodes into placements. The whole group is placed in one of them. A profile has at most one
    such plugin. Without it, the group has one placement, with all nodes.
    """

    def placement_generate(
        self, state: CycleState, group: GroupView, parent: Placement
    ) -> Answer[Sequence[Placement] | Status]:
        """Return the placements to try, with different names. Their nodes are nodes of `parent`
        (`parent.nodes.take`); a node may be in several placements.

        Empty: no placement is possible. A rejection ends the cycle of the group; an ERROR too.
        """
        ...


class PlacementScorePlugin(Protocol):
    """Rates the feasible placements of a group. Not called when only one is feasible."""

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> Answer[int | Status]:
        """Return the score of one placement, higher is better: 0..100, unless `normalize_placements` follows.

        `assignments`: the node of each member that this cycle placed there. A Status other than SUCCESS ends
        the attempt in an error.
        """
        ...


class NormalizePlacementScorePlugin(Protocol):
    """The second step of PlacementScore, for a plugin that normalises its own scores."""

    def normalize_placements(
        self, state: CycleState, group: GroupView, scores: NDArray[np.int64], placements: Sequence[Placement]
    ) -> Answer[NDArray[np.int64] | Status]:
        """Return int64[n] in 0..100, made from this plugin's scores of the n `placements`."""
        ...


class PlacementFeasiblePlugin(Protocol):
    """Decides whether a group with these numbers of members is complete. `multiPoint` enables the plugin at
    this point: KubeSchedulerConfiguration has no list for it.
    """

    def placement_feasible(
        self, state: CycleState, group: GroupView, progress: PlacementProgress
    ) -> Answer[Status | None]:
        """Return SUCCESS if the group may run as it is, WAIT if more members are needed, or UNSCHEDULABLE if
        the members that remain cannot suffice any more: the cycle tries none of them. Any other code is an
        error.

        Called before the first member and after each. A served plugin is called for many steps at once,
        before they happen: the answer must follow from the arguments and from `state.group` alone. Reasons
        may hold `{scheduled}`, `{unschedulable}` and `{remaining}`: the host puts the numbers of the step
        there.
        """
        ...


class PodGroupPostFilterPlugin(Protocol):
    """Called when the group has no feasible placement. Preemption is the typical plugin. PostFilter is not
    called for members of a group.
    """

    def pod_group_post_filter(
        self, state: CycleState, group: GroupView, tries: Tries
    ) -> Answer[PodGroupPostFilterResult | Status | None]:
        """Return SUCCESS with nominations and victims, which ends the search, or UNSCHEDULABLE.

        `tries.schedule` answers where the group would fit without some pods, `tries.preempt` what the host's
        own preemption would do. UNSCHEDULABLE: no help; the host calls the next plugin. None reads as
        UNSCHEDULABLE. UNSCHEDULABLE_AND_UNRESOLVABLE ends the search.
        """
        ...


def name_of(cls: type) -> str:
    """Return the plugin's name: its `name` attribute, or the class's own name."""
    return str(getattr(cls, "name", "") or cls.__name__)


def points_of(cls: type) -> tuple[ExtensionPoint, ...]:
    """Return the extension points whose methods the class has, in cycle order."""
    return tuple(
        point
        for point, methods in METHODS.items()
        if any(callable(getattr(cls, method, None)) for method in methods)
    )
