"""The answers of a plugin about some pods, up to Score, in a form that two runs can be compared in.

Cases ask the same question in two ways that the contract calls equal, and compare. They need to know nothing
of the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from berth_sdk.conformance import checks
from berth_sdk.conformance.case import BrokenError
from berth_sdk.conformance.host import PROFILE, Cycle, Host
from berth_sdk.conformance.world import GI, WorldNode, incoming
from berth_sdk.plugin.v1 import common_pb2 as pb

Answers = dict[str, str]
"""The answers, by question: "Filter of kit-node-1, a pod of 100m and 1024 MiB" -> "CODE_...". """
Named = Callable[[Host, Sequence[WorldNode]], pb.NodeSet]
"""Writes candidates into a request."""
_EARLY: Final = re.compile(r"^\w+\.early_(filter|scores)(?= of )")
_CALLS: Final = {"filter": "Filter", "scores": "Score"}
_SCORE: Final = "Score of "
TRIES: Final = 3
"""How often a case asks until it says that two answers differ."""


def sized(host: Host, cpu_milli: int, memory_bytes: int, **more: int) -> pb.PodSummary:
    """Return the kit's pod with these requests."""
    made = incoming("kit-sized", host.target.pod)
    for amounts in (made.requests, made.non_zero_requests):
        amounts["cpu"], amounts["memory"] = cpu_milli, memory_bytes
    made.requests.update(more)
    made.score_requests.clear()
    return made


def around(host: Host, *nodes: WorldNode) -> list[pb.PodSummary]:
    """Return pods that fit on one of the nodes just so, and pods that are a little too large."""
    made = [sized(host, 100, GI)]
    for node in nodes:
        free = node.free
        for cpu, memory in (
            (free["cpu"], 2**20),
            (free["cpu"] + 1, 2**20),
            (1, free["memory"]),
            (1, free["memory"] + 1),
        ):
            if cpu > 0 and memory > 0:
                made.append(sized(host, cpu, memory))
        for name in host.world.more:
            left = node.more.get(name, 0) - sum(pod.more.get(name, 0) for pod in node.pods.values())
            made += [sized(host, 1, 2**20, **{name: max(amount, 1)}) for amount in (left, left + 1)]
    return made


def candidates(host: Host, nodes: Sequence[WorldNode]) -> pb.NodeSet:
    """Return candidates as a host writes them."""
    return host.candidates(None if len(nodes) == len(host.world.nodes) else nodes)


class Asking:
    """The questions about one pod in one cycle. `answers` grows with each step."""

    def __init__(
        self,
        host: Host,
        pod: pb.PodSummary,
        *,
        name: str = "",
        profile: str = PROFILE,
        named: Named = candidates,
        skips_pre_filter: bool = False,
    ) -> None:
        self.host = host
        self.cycle: Cycle = host.cycle(name)
        self.cycle.like = pod
        self.cycle.profile = profile
        self.named = named
        self.skips_pre_filter = skips_pre_filter
        self.answers: Answers = {}
        self.left = host.world.candidates
        self.what = f"a pod of {pod.requests.get('cpu', 0)}m and {pod.requests.get('memory', 0) >> 20} MiB"

    def note(self, rpc: str, said: str, node: str = "") -> None:
        """Keep an answer. The name of the pod has no meaning in it."""
        place = f"{rpc} of {node}" if node else rpc
        self.answers[f"{place}, {self.what}"] = said.replace(self.cycle.pod_name, "POD")

    def steps(self) -> Iterator[None]:
        """Ask everything; yields after each call."""
        subject = self.host.subject
        asks_filter, scores = subject.has("FILTER"), subject.has("SCORE", "PRE_SCORE")
        everything = self.left
        if subject.has("PRE_FILTER") and not self.skips_pre_filter:
            answer = self._ask("PreFilter", everything)
            yield
            code = checks.decision("PreFilter", answer.ctx)
            self.note("PreFilter", _said(answer.ctx))
            if not checks.is_success(code) and code != checks.Code.CODE_SKIP:
                return
            asks_filter = asks_filter and code != checks.Code.CODE_SKIP
            scores = scores and not answer.skip_score
            if answer.HasField("eligible"):
                eligible = checks.members(
                    "PreFilter.eligible", self.host, answer.eligible, everything, either=True
                )
                self._keep(
                    "PreFilter", {n.index: "not eligible" for n in everything if n.index not in eligible}
                )
            if answer.HasField("early_filter"):
                asks_filter = False
                self._reject("PreFilter.early_filter", answer.early_filter)
            if answer.HasField("early_scores"):
                self._score("PreFilter.early_scores", answer.early_scores, everything)
                scores = False
        if asks_filter and self.left:
            asked = self.left
            answer = self._ask("Filter", asked)
            yield
            code = checks.decision("Filter", answer.ctx)
            if not checks.is_success(code):
                self.note("Filter", _said(answer.ctx))
                return
            self._reject("Filter", answer.verdicts)
            if answer.HasField("early_scores"):
                self._score("Filter.early_scores", answer.early_scores, asked)
                scores = False
            scores = scores and not answer.skip_score
        if scores and len(self.left) > 1:
            yield from self.score()

    def score(self) -> Iterator[None]:
        """Ask PreScore and Score about the nodes that are left; yields after each call."""
        subject = self.host.subject
        if subject.has("PRE_SCORE"):
            answer = self._ask("PreScore", self.left)
            yield
            code = checks.decision("PreScore", answer.ctx)
            self.note("PreScore", _said(answer.ctx))
            if not checks.is_success(code):
                return
            if answer.HasField("early_scores"):
                self._score("PreScore.early_scores", answer.early_scores, self.left)
                return
        if subject.has("SCORE"):
            answer = self._ask("Score", self.left)
            yield
            code = checks.decision("Score", answer.ctx)
            if not checks.is_success(code):
                self.note("Score", _said(answer.ctx))
            else:
                self._score("Score", answer.scores, self.left)

    def _ask(self, rpc: str, nodes: Sequence[WorldNode]) -> Any:
        return self.cycle.ask(rpc, candidates=self.named(self.host, nodes))

    def _reject(self, where: str, verdicts: Any) -> None:
        found = checks.verdicts(where, self.host, verdicts, self.left)
        self._keep(where, {index: checks.reasons(status) for index, status in found.items()})

    def _keep(self, where: str, rejected: Mapping[int, str]) -> None:
        for node in self.left:
            if node.index in rejected:
                self.note(where, rejected[node.index], node.name)
        self.left = [node for node in self.left if node.index not in rejected]

    def _score(self, where: str, scores: Any, nodes: Sequence[WorldNode]) -> None:
        found = checks.scores(where, self.host, scores, nodes)
        for node, score in zip(nodes, found, strict=True):
            self.note(where, str(score), node.name)


def _said(ctx: pb.ReplyContext) -> str:
    """Return the status of an answer for people. One without a status says SUCCESS."""
    return checks.reasons(ctx.status) if ctx.HasField("status") else "CODE_SUCCESS"


def answers(host: Host, pods: Iterable[pb.PodSummary], **how: Any) -> Answers:
    """Return the answers about pods, each in a cycle of its own. `how`: as in Asking."""
    found: Answers = {}
    for number, pod in enumerate(pods):
        asking = Asking(host, pod, **how)
        asking.what += f" (pod {number})"
        for _ in asking.steps():
            pass
        found |= asking.answers
    return found


def difference(first: Mapping[str, str], second: Mapping[str, str], only: str = "") -> str:
    """Return what differs first; empty: nothing. `only`: the beginning of what counts ("Filter").

    Whether a verdict or a score comes early is the plugin's choice at each call, also by the time left.
    A score is compared where both ways have one: an early one may be of a node that a later call rejects.
    """
    first, second = _wherever(first), _wherever(second)
    for asked in sorted(first.keys() | second.keys()):
        if asked.startswith(_SCORE) and not (asked in first and asked in second):
            continue
        one, other = first.get(asked, "nothing"), second.get(asked, "nothing")
        if asked.startswith(only) and one != other:
            return f"{asked}: {one!r}, and then {other!r}"
    return ""


def _wherever(found: Mapping[str, str]) -> Answers:
    """Return the answers with each verdict and score under one name, whichever call brought it."""
    return {_EARLY.sub(lambda early: _CALLS[early[1]], asked): said for asked, said in found.items()}


def must_agree(ask: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]], broken: str) -> None:
    """Ask in two ways, and check that the answers are equal. Raises BrokenError with `broken`.

    A plugin may answer by what changes outside, so a difference counts that comes in each of some tries.
    """
    found = ""
    for _ in range(TRIES):
        found = difference(*ask())
        if not found:
            return
    raise BrokenError(f"{broken}: {found}")
