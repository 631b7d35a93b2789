"""DynamicResources: devices for the pod's ResourceClaims -> verdict, score, reservation, allocation.

Called at PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve and PreBind. A pod without claims is
skipped. The parts of the plugin are in `berth_plugins.dynamic_resources`.

Source: KEP-4381; `pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import BerthError, NoWayBackError, SelectorError
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import (
    Account,
    Answer,
    Concerned,
    DependsOn,
    NoConcern,
    Plugin,
    PodSensitivity,
    ScoreNormalization,
)
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need
from berth_sdk.node_selectors import NodeSelector
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, PodGroup
from berth_sdk.results import (
    MAX_PATCHES,
    LiveReservation,
    NodeRejections,
    ObjectPatch,
    PatchResult,
    PodGroupPostFilterResult,
    PostFilterResult,
    PreBindResult,
    PreFlightResult,
    QueuedPod,
    Tries,
)
from berth_sdk.signature import wishes
from berth_sdk.slices import Work, done_in_slices, in_slices
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.findings import duration_s
from berth_plugins.args.gates import EXACT_HINTS, SILENT_DEALLOCATION, is_on
from berth_plugins.dynamic_resources.allocator import SLICES, Allocator
from berth_plugins.dynamic_resources.attempt import Attempt, ExtendedDemand, PodClaim
from berth_plugins.dynamic_resources.binding import deallocation, deletion, without_consumer
from berth_plugins.dynamic_resources.cel import MISSING, is_installed
from berth_plugins.dynamic_resources.claims import (
    CLAIM_KIND,
    CLAIMS,
    MAX_CONSUMERS,
    ClaimError,
    allocation_of,
    claim_names,
    claims_of,
    claims_of_group,
    consumer_of,
    group_name,
    uses_of,
)
from berth_plugins.dynamic_resources.device_classes import CLASS_KIND, CLASSES, may_be_served
from berth_plugins.dynamic_resources.requests import requests_of
from berth_plugins.dynamic_resources.reservations import ClaimReservations
from berth_plugins.dynamic_resources.rules import TAINT_RULE_KIND, TAINT_RULES, Rules
from berth_plugins.dynamic_resources.selectors import class_selectors
from berth_plugins.objects.of_events import as_object, as_pod, may_give_reservation_back

SLICE_KIND: Final = "resource.k8s.io/ResourceSlice"
NOT_FOUND: Final = "not found"
_ATTEMPT: Final = "attempt"
_MEMBERS: Final = "members"
"""In the state of a group's cycle: the attempts of its members with wishes, by uid."""
_GROUPS: Final = "groups"
"""In the state of a group's cycle: the key of its root group, and the group."""
FILTER_TIMEOUT_GATE: Final = "DRASchedulerFilterTimeout"
TOPOLOGY_GATE: Final = "TopologyAwareWorkloadScheduling"
_NOTHING: Final = Attempt(Pod(name=""))
"""The state of all pods that need no devices. It holds no reference to a pod."""


class DynamicResources(Plugin):
    """Rejects nodes where the pod's claims are not available or cannot be allocated, and allocates the
    claims.
    """

    accounts: ClassVar[Sequence[Account]] = (Account.DEVICES,)
    needs: Sequence[Need] = (
        Need.whole_pod(
            (
                "containers.name",
                "containers.resources",
                "initContainers.name",
                "initContainers.resources",
                "initContainers.restartPolicy",
                "resourceClaims",
            )
        ),
        Need.nodes(),
        Need.objects(CLAIMS),
        Need.objects(SLICES),
        Need.objects(CLASSES),
        Need.objects(TAINT_RULES),
    )
    # Reserved devices are in the plugin's memory alone.
    depends_on: DependsOn | None = DependsOn.OTHER
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX
    # A deleted pod gives no claim back.
    pod_sensitivity: PodSensitivity | None = PodSensitivity.NONE
    # PreBind waits for devices, up to ten minutes.
    deadlines: ClassVar[Mapping[str, float]] = {"preBind": 660.0}
    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("add", "update.labels", "update.allocatable")),
        EventInterest(CLAIM_KIND, ("add", "update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(TARGET_POD, ("update.generatedResourceClaim",), Hint.ASK_PLUGIN),
        EventInterest(ASSIGNED_POD, ("delete",), Hint.ASK_PLUGIN),
        EventInterest(CLASS_KIND, ("add", "update", "delete")),
        EventInterest(SLICE_KIND, ("add", "update", "delete")),
        EventInterest(TAINT_RULE_KIND, ("add", "update", "delete")),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: DynamicResourcesArgs. Raises PluginArgsError for durations that cannot be read."""
        super().__init__(args, handle)
        self._exact_hints = is_on(args, EXACT_HINTS, default=True)
        self._topology = is_on(args, TOPOLOGY_GATE, default=False)
        self._is_silent = is_on(args, SILENT_DEALLOCATION, default=True)
        self._rules = Rules.of(args)
        self._filter_timeout_s = duration_s(args, "filterTimeout", "filterTimeout", 10.0)
        if not is_on(args, FILTER_TIMEOUT_GATE, default=True):
            self._filter_timeout_s = 0.0
        self._binding_timeout_s = duration_s(args, "bindingTimeout", "bindingTimeout", 600.0)
        self._made: tuple[Allocator, ClaimReservations] | None = None

    # --- the queue -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: QueuedPod) -> Answer[Status | None]:
        """Return unresolvable while a claim of the pod is missing, being deleted, or another pod's."""
        if not pod.pod.spec.get("resourceClaims"):
            return SUCCESS
        return in_slices(self._pre_enqueue(pod.pod))

    def _pre_enqueue(self, pod: Pod) -> Work[Status]:
        try:
            yield from claims_of(pod, self._allocator.claims, of_groups=self._rules.of_groups)
        except ClaimError as err:
            return Status.unresolvable(str(err))
        return SUCCESS

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return the wishes of the whole pod: its claims are its own, or made from its template."""
        return wishes(pod)

    def hint_keys(self, pod: Pod) -> Collection[Hashable]:
        """Return the pod's claims that have a name by now: (namespace, name)."""
        return {(pod.namespace, name) for name in claim_names(pod)}

    def pre_queueing_hint(self, event: ClusterEvent) -> Concerned:
        """Return the claim that the event is about; None for an event that frees devices."""
        if event.resource == "Pod":
            return None if event.new is None and self._gives_back(as_pod(event.old)) else ()
        had_devices = event.old is not None and allocation_of(as_object(event.old)) is not None
        if had_devices and (event.new is None or allocation_of(as_object(event.new)) is None):
            return None
        if event.new is None:
            return ()
        claim = as_object(event.new).ref
        return ((claim.namespace, claim.name),) if claim.uid else None

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> Answer[bool]:
        """Return True if the event may give the pod its devices.

        Such events: a claim lost its allocation or was deleted with it; a claim of the pod was added or
        changed; the pod has all its claims now; another pod gives reserved devices back.
        """
        return in_slices(self._may_help(event, pod))

    def _may_help(self, event: ClusterEvent, pod: Pod) -> Work[bool]:
        if event.resource == "Pod":
            if event.new is None:
                # Until PreBind writes the claims, only the plugin's memory has the reserved devices.
                return self._gives_back(as_pod(event.old))
            changed = as_pod(event.new)
            return changed.uid == pod.uid and (yield from self._claims_of(changed)) is not None
        claims = yield from self._claims_of(pod)
        if claims is None:
            return False
        if event.new is None:
            return allocation_of(as_object(event.old)) is not None
        new = as_object(event.new)
        is_own = any(claim.ref.uid == new.ref.uid for claim in claims)
        if event.old is None:
            return is_own
        old = as_object(event.old)
        if allocation_of(old) is not None and allocation_of(new) is None:
            return True
        if self._exact_hints:
            return is_own
        return is_own and (old.get("status") or {}) != (new.get("status") or {})

    def _gives_back(self, gone: Pod) -> bool:
        return may_give_reservation_back(gone) and self._has_wishes(gone)

    # --- the scheduling cycle ------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Return SKIP for a pod that needs no devices, unresolvable where no node could help."""
        if not self._has_wishes(pod):
            state.write(_ATTEMPT, _NOTHING)
            return Status.skip()
        return in_slices(self._pre_filter(state, pod))

    def _pre_filter(self, state: CycleState, pod: Pod) -> Work[Status]:
        root_key, own_group = self._groups_of(state, pod)
        attempt = Attempt(pod, group=root_key)
        state.write(_ATTEMPT, attempt)
        if state.group is not None:
            members: dict[str, Attempt] = state.group.get_or_make(_MEMBERS, _nobody)
            members[pod.uid] = attempt
        allocator = self._allocator
        yield from allocator.refresh()
        try:
            claims = yield from self._claims_to_use(pod, root_key, own_group)
        except ClaimError as err:
            return Status.unresolvable(str(err))
        except SelectorError as err:
            return Status.error(str(err))
        extended = self._extended(pod)
        if not claims and extended is None:
            return Status.skip()
        for one in {id(one): one for one in claims}.values():
            yield
            known = one.is_allocated or one.promised is not None
            status = self._check_room(one, pod) if known else self._check(one.claim)
            if not status.is_success:
                return status
        if extended is not None and not is_installed():
            status = self._check_classes(extended.served.values())
            if not status.is_success:
                return status
        attempt.claims, attempt.extended = claims, extended
        if allocator.rules.positive_shares and (attempt.unallocated or extended is not None):
            # A negative share would add room to its device, which others may have already.
            negative = allocator.ledger.negative_share()
            if negative:
                return Status.error(f"{negative}; delete the claim, or correct its status")
        return SUCCESS

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return `NoConcern.CYCLE` without claims and without resources that a device class can provide;
        None with them.
        """
        if pod.spec.get("resourceClaims") or any(map(may_be_served, pod.requests)):
            return None
        return NoConcern.CYCLE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the pod's wishes, or `NoConcern.CYCLE`: the resources that device classes provide may
        change.
        """
        if self._has_wishes(pod):
            return wishes(pod)
        return NoConcern.CYCLE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts | Status]:
        """Search devices for every node. The result per node is stored for Score and Reserve."""
        attempt: Attempt | None = state.get(_ATTEMPT)
        if attempt is None:
            return Status.error(NOT_FOUND)
        if attempt.is_empty:
            return SUCCESS
        return in_slices(self._allocator.verdicts(attempt, nodes))

    def post_filter(
        self, state: CycleState, pod: Pod, rejections: NodeRejections
    ) -> PostFilterResult | Status:
        """Remove the allocation from a claim that excludes nodes, if no other pod uses the claim."""
        attempt: Attempt | None = state.get(_ATTEMPT)
        if attempt is None:
            # PreFilter ended before this plugin was called.
            return Status.error(NOT_FOUND)
        if attempt.is_empty:
            return self._nothing_to_deallocate("no new claims to deallocate")
        freed = _freed(attempt, pod, frozenset())
        if freed is None:
            return self._nothing_to_deallocate("still not schedulable")
        text, patches = freed
        return PostFilterResult(Status.unschedulable(text), patches=patches)

    def pod_group_post_filter(
        self, state: CycleState, group: GroupView, tries: Tries
    ) -> PodGroupPostFilterResult | Status:
        """Do for each member with claims what PostFilter does for a pod."""
        if group.group.is_composite or (self._topology and _is_constrained(group.group)):
            return Status.unschedulable()
        if not tries.reached_pre_filter:
            return Status.error(NOT_FOUND)
        patches: list[ObjectPatch] = []
        known: dict[str, Attempt] = state.get(_MEMBERS) or {}
        all_freed = True
        mates = frozenset(pod.uid for pod in group.pods)
        for pod in group.pods:
            attempt = known.get(pod.uid)
            freed = None if attempt is None or attempt.is_empty else _freed(attempt, pod, mates)
            if freed is None:
                all_freed = False
            else:
                # A claim that members share is given up once: the second patch would find it changed.
                new = [patch for patch in freed[1] if patch not in patches]
                # The group's next attempt gives up the claims that this answer has no room for.
                patches += new if len(patches) + len(new) <= MAX_PATCHES else ()
        text = "deallocation and deletion of ResourceClaims completed"
        if self._rules.of_groups and not all_freed and not group.scheduled:
            given_up = self._given_up(group.group, known.values())
            if given_up is not None and len(patches) < MAX_PATCHES:
                text = given_up[0]
                patches.append(given_up[1])
        return PodGroupPostFilterResult(Status.unschedulable(text), patches=tuple(patches))

    def _given_up(self, group: PodGroup, attempts: Iterable[Attempt]) -> tuple[str, ObjectPatch] | None:
        """Return a text and the patch by which a group without a running member gives up a claim; None for
        none. A claim that keeps members from a node loses its allocation, another one the group as its user.
        """
        for attempt in attempts:
            for i in sorted(attempt.unavailable):
                claim = attempt.claims[i].claim
                users = claim.get("status.reservedFor") or []
                if len(users) <= 1 and all(one.get("uid") == group.uid for one in users):
                    return "deallocation of PodGroup ResourceClaim completed", deallocation(claim)
        for claim in claims_of_group(group, self._allocator.claims):
            users = claim.get("status.reservedFor") or []
            if allocation_of(claim) is not None and any(one.get("uid") == group.uid for one in users):
                return "ResourceClaim unreserved for PodGroup", without_consumer(claim, group.uid)
        return None

    def _nothing_to_deallocate(self, reason: str) -> Status:
        return Status.unschedulable() if self._is_silent else Status.unschedulable(reason)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: points for early alternatives of prioritised lists."""
        attempt: Attempt | None = state.get(_ATTEMPT)
        if attempt is None or attempt.outcomes is None:
            return np.zeros(len(nodes), dtype=np.int64)
        return attempt.outcomes.scores[nodes.slots]

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[Status]:
        """Count the chosen devices as taken, until the claims have the allocation. SKIP without claims."""
        attempt: Attempt | None = state.get(_ATTEMPT)
        if attempt is None:
            return Status.error(NOT_FOUND)
        if attempt.is_empty:
            return Status.skip()
        return in_slices(self._reservations.reserve(state, attempt, node_name))

    async def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give the devices back."""
        attempt: Attempt | None = state.get(_ATTEMPT)
        if state.token is not None or (attempt is not None and not attempt.is_empty):
            await done_in_slices(self._reservations.give_back(state))

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation]:
        """Restore the reservations whose token is complete. The host tries the pods of the others again."""
        return self._reservations.take_up(live)

    # --- the binding cycle ---------------------------------------------------------------------

    async def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> PreFlightResult:
        """Return SKIP without claims."""
        attempt: Attempt | None = state.get(_ATTEMPT)
        if state.token is None and (attempt is None or attempt.is_empty):
            return PreFlightResult(Status.skip())
        return PreFlightResult(SUCCESS, allow_parallel=True)

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult | Status:
        """Write allocations and reservations to the claims, then wait until their devices are ready."""
        return await done_in_slices(self._reservations.pre_bind(state, pod, node_name, patched))

    # --- parts -----------------------------------------------------------------------------------

    @property
    def _allocator(self) -> Allocator:
        return self._parts()[0]

    @property
    def _reservations(self) -> ClaimReservations:
        return self._parts()[1]

    def _parts(self) -> tuple[Allocator, ClaimReservations]:
        """Return the parts, made at the first use: before the host has started there is nothing to read."""
        if self._made is None:
            allocator = Allocator(self.handle, self._rules, self._filter_timeout_s, self._binding_timeout_s)
            self._made = allocator, ClaimReservations(allocator, self.handle, self._binding_timeout_s)
        return self._made

    def _claims_of(self, pod: Pod) -> Work[list[KubeObject] | None]:
        """Return the pod's claims. None: a claim is missing or must not be used."""
        try:
            return (yield from claims_of(pod, self._allocator.claims, of_groups=self._rules.of_groups))
        except ClaimError:
            return None

    def _has_wishes(self, pod: Pod) -> bool:
        return bool(pod.spec.get("resourceClaims")) or self._may_need_devices(pod)

    def _may_need_devices(self, pod: Pod) -> bool:
        classes = self._allocator.classes
        return bool(classes) and any(
            value > 0 and may_be_served(name) and classes.serving(name) is not None
            for name, value in pod.requests.items()
        )

    def _extended(self, pod: Pod) -> ExtendedDemand | None:
        wanted = [name for name, value in pod.requests.items() if value > 0 and may_be_served(name)]
        classes = self._allocator.classes
        served = {name: found for name in wanted if (found := classes.serving(name)) is not None}
        if not served:
            return None
        others = tuple(name for name in wanted if name not in served)
        return ExtendedDemand(served, others, self._allocator.ledger.extended_claim_of(pod.uid))

    def _groups_of(self, state: CycleState, pod: Pod) -> tuple[str, PodGroup | None]:
        """Return the key of the pod's root group ("" for none), and the pod's own group.

        Read once in a group's cycle: of a served plugin every read is a call.
        """

        def read() -> tuple[str, PodGroup | None]:
            groups = self.handle.pod_groups()
            try:
                root = groups.root(pod.group_key)
                return pod.group_key if root is None else root.key, groups.object(pod.group_key)
            except NoWayBackError:
                # The group is tried by itself: there is no host that knows a group above it.
                return pod.group_key, None

        if not pod.group_key:
            return "", None
        return read() if state.group is None else state.group.get_or_make(_GROUPS, read)

    def _claims_to_use(self, pod: Pod, root_key: str, own: PodGroup | None) -> Work[tuple[PodClaim, ...]]:
        """Return the pod's claims, with the group that each is reserved for. Raises ClaimError and
        SelectorError.
        """
        of_groups = self._rules.of_groups
        uses = yield from uses_of(pod, self._allocator.claims, of_groups=of_groups)
        shares = bool(uses) and of_groups and bool(group_name(pod))
        if shares and own is None:
            raise ClaimError(f"pod group object not found for pod group {pod.group_key}")
        read: dict[tuple[int, bool], PodClaim] = {}
        claims = []
        for entry, claim in uses:
            consumer = consumer_of(entry, claim, own) if shares and own is not None else None
            which = id(claim), consumer is not None
            one = read.get(which)
            if one is None:
                one = read[which] = replace(self._read(claim, root_key), consumer=consumer)
            claims.append(one)
            yield
        return tuple(claims)

    def _read(self, claim: KubeObject, group: str) -> PodClaim:
        """Read a claim, with its allocation or that which the pod may write to it (`Ledger.promised`).

        Raises SelectorError for an allocation whose node selector cannot be read.
        """
        allocation = allocation_of(claim)
        promised = None if allocation is not None else self._allocator.ledger.promised(claim, group)
        raw = (allocation or promised or {}).get("nodeSelector")
        if raw is None:
            return PodClaim(claim, promised=promised)
        selector = NodeSelector.of(raw)
        selector.check()
        return PodClaim(claim, selector, promised)

    def _check_room(self, one: PodClaim, pod: Pod) -> Status:
        """Return a rejection for a member of a group if the claim has as many users as a claim can have.

        kube-scheduler finds that out when it writes the claim, after other members of a gang have started. A
        pod without a group is told by the API server, as there.
        """
        if not pod.group_key or not self._reservations.is_full(one, pod):
            return SUCCESS
        return Status.unresolvable(
            f"resource claim {one.claim.ref.key} has {MAX_CONSUMERS} users, as many as a claim can have"
        )

    def _check(self, claim: KubeObject) -> Status:
        """Return a rejection or an error if the claim cannot be allocated at all."""
        key = claim.ref.key
        if self._allocator.ledger.is_in_flight(claim):
            return Status.unresolvable(f"resource claim {key} is in the process of being allocated")
        try:
            requests = requests_of(claim.get("spec") or {})
        except (BerthError, ValueError, TypeError, AttributeError) as err:
            return Status.unresolvable(f"resource claim {key} cannot be read: {err}")
        for one in requests:
            if not one.alternatives:
                return Status.unresolvable(f"resource claim {key}, request {one.name}: unknown request type")
            for request in one.alternatives:
                if not request.class_name:
                    return Status.error(f"request {request.full_name}: unsupported request type")
                if self._allocator.classes.get(request.class_name) is None:
                    return Status.unresolvable(
                        f"request {request.full_name}: device class {request.class_name} does not exist"
                    )
            if not is_installed():
                if any(request.selectors for request in one.alternatives):
                    return Status.unresolvable(f"resource claim {key}, request {one.name}: {MISSING}")
                status = self._check_classes(request.class_name for request in one.alternatives)
                if not status.is_success:
                    return status
        return SUCCESS

    def _check_classes(self, names: Iterable[str]) -> Status:
        """Return a rejection for classes with selectors, which need the extra."""
        for name in names:
            device_class = self._allocator.classes.get(name)
            if device_class is not None and class_selectors(device_class):
                return Status.unresolvable(f"device class {name}: {MISSING}")
        return SUCCESS


def _nobody() -> dict[str, Attempt]:
    return {}


def _is_constrained(group: PodGroup) -> bool:
    """Return True if the group says anything of topology, even an empty list of keys."""
    return bool(group.topology_key) or (
        group.object is not None and group.object.get("spec.schedulingConstraints") is not None
    )


def _freed(attempt: Attempt, pod: Pod, mates: Set[str]) -> tuple[str, tuple[ObjectPatch, ...]] | None:
    """Return a text and the patches that give up a claim which keeps the pod from a node; None for none.

    `mates`: the uids of the pods that are tried together, and so run nowhere. Their reservations of an
    attempt that was undone keep no devices.
    """
    for i in sorted(attempt.unavailable):
        claim = attempt.claims[i].claim
        reserved = claim.get("status.reservedFor") or []
        if all(one.get("uid") == pod.uid or one.get("uid") in mates for one in reserved):
            return "deallocation of ResourceClaim completed", (deallocation(claim),)
    stale = attempt.extended.stale if attempt.extended is not None else None
    if stale is not None:
        return "deletion of ResourceClaim completed", deletion(stale)
    return None
