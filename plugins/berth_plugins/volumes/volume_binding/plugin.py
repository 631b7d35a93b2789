"""The extension points of VolumeBinding.

Source: `pkg/scheduler/framework/plugins/volumebinding/volume_binding.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ASSIGNED_POD, ClusterEvent, EventInterest, Hint
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
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation, PatchResult, PreBindResult, PreFlightResult
from berth_sdk.signature import wishes
from berth_sdk.slices import Work, done_in_slices, in_slices
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.findings import Findings, integer
from berth_plugins.args.gates import EXACT_HINTS, EXACT_VOLUME_SIZES, is_on
from berth_plugins.objects.of_events import as_object
from berth_plugins.volumes.records import (
    CLAIM_EVENT,
    CLAIMS,
    CLASS_EVENT,
    CLASSES,
    CSI_CAPACITIES,
    CSI_CAPACITY_EVENT,
    CSI_DRIVER_EVENT,
    CSI_DRIVERS,
    CSI_NODE_EVENT,
    CSI_NODES,
    VOLUME_EVENT,
    VOLUMES,
    Stores,
    claim_volumes,
)
from berth_plugins.volumes.volume_binding.assuming import Assumed, AssumeError
from berth_plugins.volumes.volume_binding.binding import TOO_LARGE, Binder, Reservation
from berth_plugins.volumes.volume_binding.claims import PodClaims, all_bound, problem_of, sorted_claims
from berth_plugins.volumes.volume_binding.finding import Finder, Found
from berth_plugins.volumes.volume_binding.hints import helped_in_1_36, may_help
from berth_plugins.volumes.volume_binding.scoring import CapacityScore

_CLAIMS: Final = "claims"
_FOUND: Final = "found"
_RESERVED: Final = "reserved"
_DEFAULT_TIMEOUT_S: Final = 600
_LONGEST_WAIT_S: Final = 599.0
"""The host allows ten minutes for all rounds of a PreBind. This plugin must report the timeout before
that.
"""


_NO_POD: Final = Pod(name="")
"""Most hints follow from the event alone."""


class VolumeBinding(Plugin):
    """Rejects nodes where the pod's volumes cannot be used or provisioned. Binds the volumes that waited for
    the node, and holds the pod until they are bound.
    """

    accounts: ClassVar[Sequence[Account]] = (Account.VOLUMES,)
    pod_sensitivity: PodSensitivity | None = PodSensitivity.NONE
    depends_on: DependsOn | None = DependsOn.OTHER
    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    deadlines: ClassVar[Mapping[str, float]] = {"preBind": 600.0}
    needs: Sequence[Need] = (
        Need.whole_pod(("volumes",)),
        Need.nodes(),
        Need.objects(CLAIMS),
        Need.objects(VOLUMES),
        Need.objects(CLASSES),
        Need.objects(CSI_NODES),
        Need.objects(CSI_DRIVERS),
        Need.objects(CSI_CAPACITIES),
    )
    events: Sequence[EventInterest] | None = (
        EventInterest(CLASS_EVENT, ("add", "update"), Hint.ASK_PLUGIN),
        EventInterest(CLAIM_EVENT, ("add", "update"), Hint.ASK_PLUGIN),
        EventInterest(VOLUME_EVENT, ("add", "update")),
        EventInterest("Node", ("add", "update.labels")),
        EventInterest(CSI_NODE_EVENT, ("add", "update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(CSI_DRIVER_EVENT, ("update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(CSI_CAPACITY_EVENT, ("add", "update"), Hint.ASK_PLUGIN),
        EventInterest(ASSIGNED_POD, ("delete",), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: VolumeBindingArgs. Raises PluginArgsError with every error in the arguments."""
        super().__init__(args, handle)
        findings = Findings()
        timeout_s = _DEFAULT_TIMEOUT_S
        if args.get("bindTimeoutSeconds") is not None:
            timeout_s = integer(args, "bindTimeoutSeconds", "bindTimeoutSeconds")
        if timeout_s < 0:
            findings.invalid("bindTimeoutSeconds", timeout_s, "should not be a negative value")
        self._score: CapacityScore | None = None
        if is_on(args, "StorageCapacityScoring", default=True):
            self._score = CapacityScore(args, findings)
        elif args.get("shape") is not None:
            findings.forbidden("shape", "turn on the feature gate StorageCapacityScoring, or remove it")
        findings.check()
        self._no_concern = NoConcern.CYCLE if self._score is None else NoConcern.NEUTRAL
        self._may_help = may_help if is_on(args, EXACT_HINTS, default=True) else helped_in_1_36
        self._stores = Stores(handle)
        self._claims = Assumed(self._stores.claims, "v1.PersistentVolumeClaim")
        self._volumes = Assumed(self._stores.volumes, "v1.PersistentVolume")
        exact_sizes = is_on(args, EXACT_VOLUME_SIZES, default=True)
        self._finder = Finder(handle, self._stores, self._volumes, exact_sizes=exact_sizes)
        self._binder = Binder(handle, self._claims, self._volumes, min(float(timeout_s), _LONGEST_WAIT_S))

    # --- the scheduling cycle ----------------------------------------------------------------------

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return `NoConcern` without claims to bind: Score is 0 for every node then. None with claims."""
        return None if claim_volumes(pod) else self._no_concern

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the wishes of a pod with claims to bind."""
        return wishes(pod)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Return SKIP without claims. Unresolvable where a claim is missing, lost, being deleted, another
        pod's, or should be bound already.
        """
        if not pod.volumes or not claim_volumes(pod):
            return Status.skip()
        return in_slices(self._pre_filter(state, pod))

    def _pre_filter(self, state: CycleState, pod: Pod) -> Work[Status]:
        problem = yield from problem_of(pod, self._stores)
        if problem:
            return Status.unresolvable(problem)
        found = yield from self._sorted(pod)
        if isinstance(found, Status):
            return found
        state.write(_CLAIMS, found)
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts | Status]:
        """Return unresolvable, with all reasons, where a volume cannot be used, found or provisioned."""
        return in_slices(self._filter_nodes(state, pod, nodes))

    def _filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Verdicts | Status]:
        claims: PodClaims | Status = state.get(_CLAIMS) or (yield from self._sorted(pod))
        if isinstance(claims, Status):
            return claims
        verdicts, found = yield from self._finder.find(claims, nodes)
        # Filter may run on the nodes in parts. Of two results for one node, the later one counts.
        state.write(_FOUND, (found, *state.get(_FOUND, ())))
        return verdicts

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return SKIP unless StorageCapacityScoring is on."""
        return Status.skip() if self._score is None else SUCCESS

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n], 0..100: how well the sizes fit, by the configured shape; 0 without claims."""
        scores = np.zeros(len(nodes), dtype=np.int64)
        if self._score is None:
            return scores
        open_rows = np.ones(len(nodes), dtype=np.bool_)
        for found in state.get(_FOUND, ()):
            values = np.full(nodes.slot_count, -1, dtype=np.int64)
            values[found.nodes.slots[found.passed]] = self._score.over(found)[found.passed]
            here = nodes.take_of(values)
            new = open_rows & (here >= 0)
            scores[new] = here[new]
            open_rows &= ~new
        return scores

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[Status]:
        """Assume the node's volumes for the pod. SKIP when all its claims are bound. ERROR when a volume does
        not exist or has changed meanwhile.
        """
        found: Found | None = next((one for one in state.get(_FOUND, ()) if one.has(node_name)), None)
        return Status.skip() if found is None else in_slices(self._reserve(state, pod, node_name, found))

    def _reserve(self, state: CycleState, pod: Pod, node_name: str, found: Found) -> Work[Status]:
        if (yield from all_bound(pod, self._claims)):
            return Status.skip()
        matches, provisions = yield from found.at(node_name)
        made = Reservation(node_name)
        # Unreserve finds what is assumed by now, wherever the work is given up.
        state.write(_RESERVED, made)
        try:
            yield from self._binder.promise(state.cycle_id, made, matches, provisions)
        except AssumeError as err:
            return Status.error(str(err))
        state.token = made.token
        return SUCCESS

    async def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give back the assumed objects. Written objects stay, and the next attempt uses them."""
        made = self._reservation(state)
        if made is not None:
            await done_in_slices(self._binder.give_back(state.cycle_id, made))

    def reconcile(self, live: Sequence[LiveReservation]) -> list[LiveReservation]:
        """Restore the assumed objects of these cycles, and drop all others: a new host does not know its
        predecessor's cycles. Returns the reservations whose tokens are incomplete.
        """
        cycles = {one.state.cycle_id for one in live}
        self._claims.keep_only(cycles)
        self._volumes.keep_only(cycles)
        return [one for one in live if one.state.token is not None and self._reservation(one.state) is None]

    # --- the binding cycle -------------------------------------------------------------------------

    async def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> PreFlightResult:
        """Return SKIP when there is nothing to bind."""
        made = self._reservation(state)
        return PreFlightResult(Status.skip() if made is None else SUCCESS, allow_parallel=True)

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        """Write the claims into the volumes and the node into the claims, then wait for the controllers."""
        made = self._reservation(state)
        if made is None:
            return PreBindResult(SUCCESS)
        answer = await done_in_slices(self._binder.write(made, patched))
        if answer is None:
            waiting = self._binder.wait(made, gone=pod.name if state.pod_deleted else "")
            answer = await done_in_slices(waiting)
        if answer.status.is_success and not answer.patches and answer.ask_again_after_s is None:
            await done_in_slices(self._binder.give_back(state.cycle_id, made))
        return answer

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return the wishes of the whole pod: its volumes and its own claims."""
        return wishes(pod)

    def hint_keys(self, pod: Pod) -> Sequence[Hashable]:
        """Return the pod's claims: (namespace, name)."""
        return [(pod.namespace, volume.claim) for volume in claim_volumes(pod)]

    def pre_queueing_hint(self, event: ClusterEvent) -> Concerned:
        """Return the claim that the event is about; no claim for an event that helps no pod."""
        if event.resource == CLAIM_EVENT:
            claim = as_object(event.new).ref
            return ((claim.namespace, claim.name),)
        if event.resource == CSI_DRIVER_EVENT and self._may_help is not may_help:
            return None  # it matters which volumes a pod has
        return None if self._may_help(event, _NO_POD) else ()

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if a claim of the pod may need the added or changed object, or another pod gives
        assumed volumes back.
        """
        return self._may_help(event, pod)

    def _sorted(self, pod: Pod) -> Work[PodClaims | Status]:
        return sorted_claims(pod, self._claims, self._stores.classes)

    def _reservation(self, state: CycleState) -> Reservation | None:
        """Return the reservation of this process, else the one restored from the token."""
        made: Reservation | None = state.get(_RESERVED)
        if made is None and state.token not in (None, b"", TOO_LARGE):
            made = self._binder.take_up(state.cycle_id, state.token or b"")
            if made is not None:
                state.write(_RESERVED, made)
        return made
