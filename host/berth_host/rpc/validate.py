"""Checks the answers of plugins: lengths, subsets, codes, bounds. Raises PluginProtocolError.

The column `check` of `rpc.calls`. The relay calls the checks for both transports before it returns the
answer. A code without a meaning at its point becomes ERROR, with the reasons kept, as in kube-scheduler.
Source: the contract's limits; kube-scheduler `framework/runtime/framework.go` (score range), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, Protocol

import numpy as np
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.needs import NeedKind
from berth_sdk.pod import Pod
from berth_sdk.results import (
    MAX_PATCHES,
    BindResult,
    FilterResult,
    ObjectPatch,
    PatchAction,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
)
from berth_sdk.runtime.convert import INT64
from berth_sdk.runtime.descriptor import EARLY, Descriptor
from berth_sdk.runtime.early import PreScored
from berth_sdk.status import MAX_NODE_SCORE, MIN_NODE_SCORE, Code, Status, Verdicts
from berth_sdk.tables.few import FEW
from numpy.typing import NDArray

from berth_host.attempt.call_record import Reserved
from berth_host.config.berth.points import POINT_RULES
from berth_host.errors.plugins import PluginProtocolError
from berth_host.log.hidden import without_hidden
from berth_host.rpc.call import AnyCall
from berth_host.rpc.code_log import CodeLog
from berth_host.rpc.hint_answer import HintAnswer

MAX_PERMIT_WAIT_S: Final = 15 * 60.0
MAX_PATCH_DEPTH: Final = 100
"""The most levels of a patch's body, since recursive code reads it. Objects of Kubernetes have fewer than
half.
"""
MAX_PRE_BIND_WAIT_S: Final = POINT_RULES["preBind"].max_deadline_ms / 1000
"""The longest wait for the next round of PreBind: the maximum of its deadline."""
MAX_KEY_BYTES: Final = 256
MAX_TOKEN_BYTES: Final = 4096
_INT32: Final = np.dtype(np.int32)
_IDENTITY_FIELDS: Final = ("name", "namespace", "uid", "resourceVersion")
VERDICT_CODES: Final = frozenset(
    {
        Code.SUCCESS,
        Code.ERROR,
        Code.UNSCHEDULABLE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        Code.PENDING,
    }
)
"""The codes that Filter may answer about a node."""


class ClusterFacts(Protocol):
    """The snapshot of the open cycle; victims and nominations are checked against it."""

    def has_node(self, node_name: str) -> bool:
        """Return True if the snapshot has this node."""
        ...

    def pod_on_node(self, node_name: str, uid: str) -> Pod | None:
        """Return the pod with this uid on that node; None if it is not there."""
        ...

    def pod_on_some_node(self, uid: str) -> Pod | None:
        """Return the pod with this uid; None if it is on no node."""
        ...

    def evicted_with(self, pod: Pod) -> str:
        """Return the key of the group that leaves as a whole when the pod is preempted; "" for none."""
        ...

    def preemption_priority(self, pod: Pod) -> int:
        """Return the priority that decides whether a pod on a node may be preempted: that of its group."""
        ...


@dataclass(frozen=True, slots=True)
class Checker:
    """The checks for one plugin, by its descriptor."""

    descriptor: Descriptor
    facts: ClusterFacts
    codes: CodeLog = field(default_factory=CodeLog)
    """Logs the codes that are read as ERROR."""
    _sound: list[NDArray[np.int64]] = field(default_factory=list, compare=False)
    """The read-only scores that were in range last; the same array may come again (`RepeatedScores`)."""

    # --- the queue ---------------------------------------------------------------------------------

    def pre_enqueue(self, call: AnyCall, statuses: Sequence[Status], count: int) -> list[Status]:
        """Check that there is one status per pod."""
        self._count(call, len(statuses), count, "statuses")
        return [self.status(call, status) for status in statuses]

    def sort_keys(self, call: AnyCall, keys: Sequence[bytes], count: int) -> list[bytes]:
        """Check that there is one key of at most 256 bytes per pod."""
        self._count(call, len(keys), count, "keys")
        return [self.sort_key(call, key) for key in keys]

    def sort_key(self, call: AnyCall, key: bytes) -> bytes:
        """Check that a key has at most 256 bytes."""
        if len(key) > MAX_KEY_BYTES:
            self.violation(call, f"answered a sort key of {len(key)} bytes; {MAX_KEY_BYTES} is the limit")
        return key

    def queueing_hints(self, call: AnyCall, hints: Sequence[HintAnswer], count: int) -> list[HintAnswer]:
        """Check that there is one hint per pod."""
        self._count(call, len(hints), count, "hints")
        return list(hints)

    # --- the scheduling cycle ------------------------------------------------------------------------

    def pre_filter(self, call: AnyCall, result: PreFilterResult, count: int) -> PreFilterResult:
        """Check an answer of PreFilter. `count`: the number of nodes in the call."""
        status = self.status(call, result.status)
        early = result.early_filter
        if early is not None:
            early = self.verdicts(call, early, count)
        scores = self._early_scores(call, result, count)
        if status is result.status and early is result.early_filter and scores is result.early_scores:
            return result
        return PreFilterResult(status, result.eligible, early, scores, result.skip_score)

    def filter(self, call: AnyCall, result: FilterResult, count: int) -> FilterResult:
        """Check verdicts for `count` candidates, and early scores, if the normalisation allows these."""
        verdicts = self.verdicts(call, result.verdicts, count)
        scores = self._early_scores(call, result, count)
        if verdicts is result.verdicts and scores is result.early_scores:
            return result
        return FilterResult(verdicts, scores, result.skip_score)

    def _early_scores(
        self, call: AnyCall, result: PreFilterResult | FilterResult, count: int
    ) -> NDArray[np.int64] | None:
        scores = result.early_scores
        if scores is None:
            return None
        how = self.descriptor.normalization
        if how not in EARLY:
            self.violation(call, f"answered early scores with normalization {how.name}")
        if result.skip_score:
            self.violation(call, "answered early scores together with skip_score")
        return self.raw_scores(call, scores, count)

    def verdicts(self, call: AnyCall, verdicts: Verdicts, count: int) -> Verdicts:
        """Check that there is one valid verdict for each of `count` rows."""
        groups, statuses = verdicts.groups, verdicts.statuses
        if len(groups) != count:
            self._count(call, len(groups), count, "verdicts")
        is_grouped = groups.dtype is _INT32 or groups.dtype == _INT32
        if not is_grouped or not statuses or not statuses[0].is_success:
            self.violation(call, "answered verdicts that are not grouped as Verdicts says")
        if len(statuses) == 1:
            if np.count_nonzero(groups):
                self.violation(call, "answered a verdict group that does not exist")
            return verdicts
        # As an unsigned number, a negative group is above every length.
        if count and int(np.maximum.reduce(groups.view(np.uint32))) >= len(statuses):
            self.violation(call, "answered a verdict group that does not exist")
        shown = tuple(map(_without_hidden, statuses))
        if shown != tuple(statuses):
            statuses, verdicts = shown, Verdicts(groups, shown)
        if all(status.code in VERDICT_CODES for status in statuses):
            return verdicts
        # Verdicts are answers of Filter, also if another call brought them.
        return Verdicts(groups, tuple(self._legal("Filter", VERDICT_CODES, status) for status in statuses))

    def post_filter(self, call: AnyCall, result: PostFilterResult, pod: Pod) -> PostFilterResult:
        """Check that the nominated node exists, and that victims run there and have lower priority than
        `pod`.
        """
        status = self.status(call, result.status)
        node = result.nominated_node
        if node and result.clear_nomination:
            self.violation(call, f"nominated {node!r} and cleared the nomination at once")
        if status.is_success and not node and not result.clear_nomination:
            self.violation(call, "answered SUCCESS without a nominated node")
        if node and not self.facts.has_node(node):
            self.violation(call, f"nominated the unknown node {node!r}")
        if result.victims and not node:
            self.violation(call, "named victims without a nominated node")
        facts = self.facts
        here = [facts.pod_on_node(node, ref.uid) for ref in result.victims]
        # A group that is evicted as a whole leaves other nodes too.
        whole = {facts.evicted_with(victim) for victim in here if victim is not None} - {""}
        for ref, on_node in zip(result.victims, here, strict=True):
            victim = on_node or facts.pod_on_some_node(ref.uid)
            if victim is None or (on_node is None and facts.evicted_with(victim) not in whole):
                self.violation(
                    call, f"named the victim {ref.namespace}/{ref.name}, which is not on node {node!r}"
                )
            priority = facts.preemption_priority(victim)
            if priority >= pod.priority:
                self.violation(
                    call,
                    f"named the victim {victim.key} of priority {priority},"
                    f" not below the pod's {pod.priority}",
                )
        self.patches(call, result.patches, pod)
        if status is result.status:
            return result
        return replace(result, status=status)

    def pre_score(self, call: AnyCall, answer: Status | PreScored, nodes: Sized) -> Status | PreScored:
        """Check the status (SUCCESS, SKIP or ERROR) and the early scores of the nodes, if any."""
        if isinstance(answer, Status):
            return self.status(call, answer)
        status = self.status(call, answer.status)
        scores = None if answer.scores is None else self.raw_scores(call, answer.scores, len(nodes))
        if status is answer.status and scores is answer.scores:
            return answer
        return PreScored(status, scores)

    def raw_scores(self, call: AnyCall, scores: NDArray[Any], count: int) -> NDArray[np.int64]:
        """Check that there are `count` integer scores, of any size; return them as int64[count]."""
        if type(scores) is np.ndarray and scores.dtype is INT64 and scores.shape == (count,):
            return scores
        if not isinstance(scores, np.ndarray) or scores.ndim != 1 or scores.dtype.kind not in "iu":
            self.violation(call, "answered scores that are not one row of integers")
        self._count(call, len(scores), count, "scores")
        return scores.astype(np.int64, copy=False)

    def final_scores(self, call: AnyCall, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """Check that scores are in 0..100. The error has kube-scheduler's message."""
        if self._sound and self._sound[0] is scores:
            return scores
        if not in_range(scores):
            wrong = int(scores[(scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE)][0])
            raise ScoreRangeError(self.descriptor.name, call.rpc, wrong)
        if scores.flags.owndata and not scores.flags.writeable:
            self._sound[:] = (scores,)
        return scores

    # --- the chosen node -------------------------------------------------------------------------------

    def reserve(self, call: AnyCall, answer: Reserved) -> Reserved:
        """Check that Reserve has a decision, and that early answers are allowed. They are read after SUCCESS
        only, and their content is checked later.
        """
        if answer.status is None:
            self._undecided(call)
        reads_early = answer.status.is_success and answer.pre_bind is not None
        if reads_early and ExtensionPoint.PRE_BIND not in self.descriptor.points:
            self.violation(call, "answered PreBind early, in which it does not take part")
        status = self.status(call, answer.status)
        return answer if status is answer.status else replace(answer, status=status)

    def permit(self, call: AnyCall, result: PermitResult | None) -> PermitResult:
        """Check that Permit has a decision. The wait is cut to the host's maximum, which is also the
        default.
        """
        if result is None:
            self._undecided(call)
        status = self.status(call, result.status)
        if status.code is not Code.WAIT:
            return result if status is result.status else PermitResult(status)
        wait_s = result.wait_timeout_s
        effective_s = MAX_PERMIT_WAIT_S if wait_s is None else min(max(wait_s, 0.0), MAX_PERMIT_WAIT_S)
        return PermitResult(status, effective_s)

    def pre_bind_pre_flight(self, call: AnyCall, result: PreFlightResult) -> PreFlightResult:
        """Check that the code is known. The framework handles codes that are not legal."""
        code = result.status.code
        if not isinstance(code, Code):
            self.violation(call, f"answered the unknown code {code!r}")
        if code not in call.codes:
            self.codes.misplaced(self.descriptor.name, call.rpc, code.kube_name)
        return result

    def pre_bind(self, call: AnyCall, result: PreBindResult | None, pod: Pod) -> PreBindResult:
        """Check that PreBind has a decision, and at most 64 patches, each of a declared resource.

        The wait for the next round is cut to the maximum of a deadline.
        """
        if result is None:
            self._undecided(call)
        status = self.status(call, result.status)
        self.patches(call, result.patches, pod)
        after_s = result.ask_again_after_s
        if after_s is not None:
            after_s = min(max(after_s, 0.0), MAX_PRE_BIND_WAIT_S)
        if status is result.status and after_s == result.ask_again_after_s:
            return result
        return replace(result, status=status, ask_again_after_s=after_s)

    def bind(self, call: AnyCall, result: BindResult | None) -> BindResult:
        """Check that Bind has a decision."""
        if result is None:
            self._undecided(call)
        status = self.status(call, result.status)
        return result if status is result.status else BindResult(status)

    def token(self, call: AnyCall, token: bytes | None) -> None:
        """Check that a cycle token has at most 4 KiB."""
        if token is not None and len(token) > MAX_TOKEN_BYTES:
            self.violation(call, f"set a cycle token of {len(token)} bytes; {MAX_TOKEN_BYTES} is the limit")

    # --- pieces ------------------------------------------------------------------------------------------

    def status(self, call: AnyCall, status: Status) -> Status:
        """Return the status without secrets; an ERROR in place of a code that has no meaning in an answer to
        `call`.
        """
        if status.reasons:
            status = _without_hidden(status)
        return status if status.code in call.codes else self._legal(call.rpc, call.codes, status)

    def _legal(self, rpc: str, codes: frozenset[Code], status: Status) -> Status:
        if status.code in codes:
            return status
        if not isinstance(status.code, Code):
            raise PluginProtocolError(self.descriptor.name, rpc, f"answered the unknown code {status.code!r}")
        reason = self.codes.misplaced(self.descriptor.name, rpc, status.code.kube_name)
        return Status(Code.ERROR, (reason, *status.reasons), status.plugin)

    def patches(self, call: AnyCall, patches: Sequence[ObjectPatch], pod: Pod | None) -> None:
        """Check that there are at most 64 patches, of declared resources or of `pod` (None: of no pod)."""
        if len(patches) > MAX_PATCHES:
            self.violation(call, f"answered {len(patches)} patches; {MAX_PATCHES} is the limit")
        for patch in patches:
            self._patch(call, patch, pod)

    def _patch(self, call: AnyCall, patch: ObjectPatch, pod: Pod | None) -> None:
        declared = {need.resource for need in self.descriptor.needs if need.kind is NeedKind.OBJECT}
        target = f"{patch.resource} {patch.ref.namespace}/{patch.ref.name}"
        if patch.resource == "pods":
            key = f"{patch.ref.namespace}/{patch.ref.name}"
            if pod is None or key != pod.key or patch.ref.uid not in ("", pod.uid):
                self.violation(call, f"patched {target}, which is not the pod of the cycle")
            # The host refuses an unknown action when it is due.
            if patch.action not in (PatchAction.MERGE, PatchAction.UNKNOWN):
                self.violation(call, f"would {patch.action.name.lower()} {target}")
        elif patch.resource not in declared:
            self.violation(call, f"patched {target}, a resource that it did not declare")
        if not patch.ref.name:
            self.violation(call, f"patched {patch.resource} without a name")
        if patch.subresource not in ("", "status"):
            self.violation(call, f"patched the subresource {patch.subresource!r} of {target}")
        if patch.action is PatchAction.UNKNOWN:
            return  # the host makes nothing of the body
        body = patch.merge_patch
        if not isinstance(body, Mapping):
            self.violation(call, f"patched {target} with something that is not a JSON object")
        if _is_deep(body):
            self.violation(call, f"patched {target} with more than {MAX_PATCH_DEPTH} levels")
        if "metadata" in body:
            metadata = body["metadata"]
            if not isinstance(metadata, Mapping):
                self.violation(call, f"replaced the metadata of {target}")
            for key in _IDENTITY_FIELDS:
                if key in metadata:
                    self.violation(call, f"patched metadata.{key} of {target}")

    def _count(self, call: AnyCall, got: int, want: int, what: str) -> None:
        if got != want:
            self.violation(call, f"answered {got} {what} for {want}")

    def _undecided(self, call: AnyCall) -> NoReturn:
        self.violation(call, "did not decide (no status code): it has to answer a Status")

    def violation(self, call: AnyCall, detail: str) -> NoReturn:
        """Raise PluginProtocolError."""
        raise PluginProtocolError(self.descriptor.name, call.rpc, detail)


def _is_deep(body: Mapping[str, Any]) -> bool:
    """Return True if lists and objects are nested deeper than MAX_PATCH_DEPTH."""
    level: list[Any] = [body]
    for _ in range(MAX_PATCH_DEPTH):
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, Mapping) else outer)
            if isinstance(item, Mapping | list | tuple)
        ]
        if not level:
            return False
    return True


def in_range(scores: NDArray[np.int64]) -> bool:
    """Return True if all scores are in 0..100."""
    if len(scores) <= FEW:
        # Python numbers: for so few scores they are faster than numpy.
        numbers = scores.tolist()
        return not numbers or (min(numbers) >= MIN_NODE_SCORE and max(numbers) <= MAX_NODE_SCORE)
    # As unsigned numbers, negative scores are above every legal score.
    return int(np.maximum.reduce(scores.view(np.uint64))) <= MAX_NODE_SCORE


class ScoreRangeError(PluginProtocolError):
    """A final score outside 0..100. Attribute: score."""

    def __init__(self, plugin: str, call: str, score: int) -> None:
        self.score = score
        super().__init__(
            plugin, call, f"answered the score {score}, valid are {MIN_NODE_SCORE}..{MAX_NODE_SCORE}"
        )

    @property
    def text(self) -> str:
        """kube-scheduler's message."""
        return (
            f'plugin "{self.plugin}" returns an invalid score {self.score}, it should in the range of'
            f" [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing"
        )


def _without_hidden(status: Status) -> Status:
    """Return the status without secrets in its reasons, which events and conditions show."""
    reasons = tuple(map(without_hidden, status.reasons))
    return status if reasons == status.reasons else Status(status.code, reasons, status.plugin)
