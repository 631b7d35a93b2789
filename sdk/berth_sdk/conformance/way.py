"""`Way`: one pod's way through the points of a plugin, in the host's order, with every answer checked.

Cases that need an answer of a later point get there with it, as a host does.
"""

from __future__ import annotations

from typing import Any, Final

from berth_sdk.conformance import checks
from berth_sdk.conformance.case import BrokenError, SkippedError
from berth_sdk.conformance.host import PATIENCE_S, Cycle, Host, skipped
from berth_sdk.conformance.world import WorldNode

HINT: Final = "give the kit a pod that the plugin accepts (--pod), or other arguments (--args)"
Code = checks.Code


class Way:
    """The way of one pod. `left`: the nodes that nothing has rejected.

    `skips_filter`, `skips_score`: the plugin has nothing to do there for this pod.
    """

    def __init__(self, host: Host, cycle: Cycle | None = None) -> None:
        self.host = host
        self.cycle = cycle or host.cycle()
        self.left = host.world.candidates
        self.skips_filter = False
        self.skips_score = False
        self.early_filter = False

    def pre_filter(self) -> Any:
        """Ask PreFilter about all nodes. Ends the case where the plugin rejects the pod."""
        host, everything = self.host, self.host.world.candidates
        answer = self.cycle.ask("PreFilter", candidates=host.candidates())
        code = checks.decision("PreFilter", answer.ctx)
        eligible: set[int] | None = None
        if answer.HasField("eligible"):
            eligible = checks.members("PreFilter.eligible", host, answer.eligible, everything, either=True)
        rejected = {}
        if answer.HasField("early_filter"):
            rejected = checks.verdicts("PreFilter.early_filter", host, answer.early_filter, everything)
            self.early_filter = True
        checks.early_scores("PreFilter", host, answer, everything)
        if code == Code.CODE_SKIP:
            self.skips_filter = True
        elif not checks.is_success(code):
            raise lacking(self.host, f"PreFilter rejects the pod: {checks.reasons(answer.ctx.status)}")
        self.skips_score = answer.skip_score
        self.left = [
            node
            for node in everything
            if (eligible is None or node.index in eligible) and node.index not in rejected
        ]
        return answer

    def filter(self, nodes: list[WorldNode] | None = None) -> Any:
        """Ask Filter about `nodes`; None: the nodes that are left, all of the snapshot at first."""
        host = self.host
        asked = self.left if nodes is None else nodes
        is_whole = len(asked) == len(host.world.nodes)
        answer = self.cycle.ask("Filter", candidates=host.candidates(None if is_whole else asked))
        code = checks.decision("Filter", answer.ctx)
        rejected = checks.verdicts("Filter", host, answer.verdicts, asked)
        checks.early_scores("Filter", host, answer, asked)
        if not checks.is_success(code):
            raise lacking(host, f"Filter rejects the pod on every node: {checks.reasons(answer.ctx.status)}")
        self.skips_score = self.skips_score or answer.skip_score
        self.left = [node for node in asked if node.index not in rejected]
        return answer

    def to_filter(self) -> None:
        """Make the calls before Filter."""
        if self.host.subject.has("PRE_FILTER"):
            self.pre_filter()

    def to_score(self) -> None:
        """Make the calls before PreScore and Score."""
        self.to_filter()
        if self.host.subject.has("FILTER") and not self.skips_filter and not self.early_filter:
            self.filter()
        if self.skips_score:
            raise lacking(self.host, "the plugin does not score this pod (skip_score)")
        if len(self.left) < 2:
            raise lacking(
                self.host, f"the plugin leaves {len(self.left)} of the kit's nodes; scoring needs two"
            )

    def pre_score(self) -> Any:
        """Ask PreScore about the nodes that are left."""
        answer = self.cycle.ask("PreScore", candidates=self._candidates())
        code = checks.decision("PreScore", answer.ctx)
        if code == Code.CODE_SKIP:
            raise lacking(self.host, "PreScore answers SKIP: the plugin does not score this pod")
        if not checks.is_success(code):
            raise lacking(self.host, f"PreScore answers {checks.reasons(answer.ctx.status)}")
        if answer.HasField("early_scores"):
            checks.scores("PreScore.early_scores", self.host, answer.early_scores, self.left)
        return answer

    def score(self, nodes: list[WorldNode] | None = None) -> list[int]:
        """Ask Score about `nodes`; None: the nodes that are left. Returns the scores by candidate."""
        asked = self.left if nodes is None else nodes
        answer = self.cycle.ask("Score", candidates=self._candidates(asked))
        code = checks.decision("Score", answer.ctx)
        if not checks.is_success(code):
            raise lacking(self.host, f"Score answers {checks.reasons(answer.ctx.status)}")
        return checks.scores("Score", self.host, answer.scores, asked)

    def to_reserve(self) -> WorldNode:
        """Make the calls of the scheduling cycle before Reserve; return the chosen node."""
        subject = self.host.subject
        self.to_filter()
        if subject.has("FILTER") and not self.skips_filter and not self.early_filter:
            self.filter()
        if not self.left:
            raise lacking(self.host, "the plugin rejects the kit's pod on every node")
        return self.left[-1]

    def reserve(self, again: str = "") -> Any:
        """Go to Reserve and ask it. Ends the case where the plugin holds nothing.

        `again`: why a rejection breaks the contract, as the plugin accepted an equal pod before. Raises
        BrokenError then.
        """
        answer = self.try_reserve()
        code = answer.ctx.status.code
        if code == Code.CODE_SKIP:
            raise lacking(self.host, "Reserve answers SKIP: the plugin holds nothing for this pod")
        if code != Code.CODE_SUCCESS and again:
            raise BrokenError(f"Reserve answers {checks.reasons(answer.ctx.status)}: {again}")
        if code != Code.CODE_SUCCESS:
            raise lacking(self.host, f"Reserve rejects the pod: {checks.reasons(answer.ctx.status)}")
        return answer

    def try_reserve(self) -> Any:
        """Go to Reserve and ask it; return its answer."""
        node = self.to_reserve()
        self.cycle.reserved_on = node
        answer = self.cycle.ask("Reserve", **chosen(self.host, node), trial=self.cycle.trial)
        code = checks.decision("Reserve", answer.ctx)
        if answer.HasField("early_pre_bind") and not self.host.subject.has("PRE_BIND"):
            raise BrokenError("Reserve answers early_pre_bind, and the plugin does not declare PRE_BIND")
        if code == Code.CODE_SUCCESS and answer.HasField("early_pre_bind"):
            checks.decision("PreBind", answer.early_pre_bind.ctx)
            checks.patches("Reserve.early_pre_bind", self.host, answer.early_pre_bind.patches, self.cycle)
        return answer

    def to_binding(self) -> WorldNode:
        """Make every call before the binding cycle; return the chosen node."""
        if self.host.subject.has("RESERVE"):
            self.reserve()
            node = self.cycle.reserved_on
            assert node is not None
        else:
            node = self.to_reserve()
            self.cycle.reserved_on = node
        if self.host.subject.has("PERMIT"):
            self.permit(node)
        return node

    def permit(self, node: WorldNode, patience_s: float = PATIENCE_S) -> Any:
        """Ask Permit; return the answer. Ends the case where the plugin rejects the pod."""
        answer = self.cycle.ask("Permit", patience_s=patience_s, **chosen(self.host, node))
        code = checks.decision("Permit", answer.ctx)
        if code == Code.CODE_WAIT:
            self._waits(node)
        if code not in (Code.CODE_SUCCESS, Code.CODE_WAIT):
            raise lacking(self.host, f"Permit rejects the pod: {checks.reasons(answer.ctx.status)}")
        return answer

    def _waits(self, node: WorldNode) -> None:
        """Let HandleService list the pod as one that waits."""
        if (double := self.host.target.double) is not None:
            double.wait(self.host.subject.plugin.name, self.cycle.id, self.cycle.pod, node.name)

    def _candidates(self, nodes: list[WorldNode] | None = None) -> Any:
        return self.host.candidates(self.left if nodes is None else nodes)


def lacking(host: Host, reason: str) -> SkippedError:
    """Return the end of a case that another pod could have judged."""
    return skipped(f"{reason}; {HINT}", "--pod" if host.target.pod is None else "another --pod")


def chosen(host: Host, node: WorldNode) -> dict[str, Any]:
    """Return the fields that say the chosen node, up to Permit."""
    index = {"node_index": node.index} if host.subject.is_snapshot else {}
    return {"node_name": node.name, **index}
