"""Checks of the parts of answers. Each raises BrokenError, with the part and the rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

from berth_sdk.conformance.case import BrokenError
from berth_sdk.conformance.host import Cycle, Host
from berth_sdk.conformance.world import WorldNode
from berth_sdk.json.bounded import NestedTooDeeplyError, read_bounded_json
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling

Code = pb.PluginStatus
_VERDICTS: Final = (
    "CODE_ERROR",
    "CODE_UNSCHEDULABLE",
    "CODE_UNSCHEDULABLE_AND_UNRESOLVABLE",
    "CODE_PENDING",
)
_ALWAYS: Final = ("CODE_SUCCESS", "CODE_ERROR")
_ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "PreEnqueue": (*_ALWAYS, *_VERDICTS),
    "PreFilter": (
        *_ALWAYS,
        "CODE_UNSCHEDULABLE",
        "CODE_UNSCHEDULABLE_AND_UNRESOLVABLE",
        "CODE_SKIP",
    ),
    "Filter": (*_ALWAYS, *_VERDICTS),
    "a verdict": _VERDICTS,
    "SimulateFilter": (*_ALWAYS, *_VERDICTS),
    "PostFilter": (*_ALWAYS, *_VERDICTS),
    "PodGroupPostFilter": (*_ALWAYS, *_VERDICTS),
    "PreScore": (*_ALWAYS, "CODE_SKIP"),
    "Score": _ALWAYS,
    "NormalizeScore": _ALWAYS,
    "Reserve": ("CODE_SUCCESS", *_VERDICTS, "CODE_SKIP"),
    "Permit": ("CODE_SUCCESS", *_VERDICTS, "CODE_WAIT"),
    "PreBindPreFlight": (*_ALWAYS, "CODE_SKIP"),
    "PreBind": ("CODE_SUCCESS", *_VERDICTS),
    "Bind": ("CODE_SUCCESS", *_VERDICTS, "CODE_SKIP"),
    "PlacementGenerate": (*_ALWAYS, "CODE_UNSCHEDULABLE", "CODE_UNSCHEDULABLE_AND_UNRESOLVABLE"),
    "PlacementScore": _ALWAYS,
    "NormalizePlacementScore": _ALWAYS,
    "PlacementFeasible": (*_ALWAYS, "CODE_UNSCHEDULABLE"),
    "a run": (*_ALWAYS, "CODE_WAIT", "CODE_UNSCHEDULABLE"),
}
_DECIDES: Final = ("Reserve", "Permit", "PreBind", "Bind")
_MAKES_ROOM: Final = ("PostFilter", "PodGroupPostFilter")
_EARLY: Final = (
    identity.SCORE_NORMALIZATION_HOST_MAX,
    identity.SCORE_NORMALIZATION_HOST_MAX_REVERSED,
    identity.SCORE_NORMALIZATION_HOST_MIN_MAX,
    identity.SCORE_NORMALIZATION_NONE,
)
_IN_RANGE: Final = (
    identity.SCORE_NORMALIZATION_UNSPECIFIED,
    identity.SCORE_NORMALIZATION_PLUGIN,
    identity.SCORE_NORMALIZATION_NONE,
)


def status(where: str, found: pb.PluginStatus) -> int:
    """Check that a status has a code with a meaning at `where` ("Filter"); return the code."""
    code: int = found.code
    if code not in Code.Code.values():
        raise BrokenError(f"{where} answers the unknown code {code}")
    name = Code.Code.Name(found.code)
    if code == Code.CODE_UNSPECIFIED:
        what = f"reasons without a code: {found.reasons[0]!r}" if found.reasons else "a status without a code"
        raise BrokenError(f"{where} answers {what}; set PluginStatus.code")
    if name not in _ALLOWED[where]:
        raise BrokenError(f"{where} answers {name}, which has no meaning there")
    return code


def decision(where: str, ctx: pb.ReplyContext) -> int:
    """Check the status of an answer to `where` ("Filter"); return the code.

    An answer without a status has the code that the contract gives it. Raises BrokenError.
    """
    if ctx.HasField("status"):
        return status(where, ctx.status)
    if where in _DECIDES:
        raise BrokenError(f"{where} answers without a status; the plugin must decide")
    return Code.CODE_UNSCHEDULABLE if where in _MAKES_ROOM else Code.CODE_SUCCESS


def is_success(code: int) -> bool:
    """Return True for SUCCESS."""
    return code == Code.CODE_SUCCESS


def reasons(found: pb.PluginStatus) -> str:
    """Return a status for people."""
    name = Code.Code.Name(found.code) if found.code in Code.Code.values() else str(found.code)
    return f"{name} {'; '.join(found.reasons)}".strip()


def members(
    where: str, host: Host, found: pb.NodeSet, within: Sequence[WorldNode], *, either: bool = False
) -> set[int]:
    """Return the indices of a set of candidates.

    `either`: bitmaps and names, and names of strangers, are allowed. Raises BrokenError for another form than
    the node mode's, for a node that is listed twice, and for a node that is no candidate.
    """
    known = {node.name: node.index for node in within}
    if not either and host.subject.is_snapshot and found.names:
        raise BrokenError(f"{where} lists nodes by name; a plugin in SNAPSHOT mode answers with bitmaps")
    if not either and not host.subject.is_snapshot and found.bitmap:
        raise BrokenError(f"{where} answers a bitmap; a plugin in NAMES mode answers with names")
    if found.names and found.bitmap:
        raise BrokenError(f"{where} lists nodes by a bitmap and by names; a set uses one of them")
    name, count = Counter(found.names).most_common(1)[0] if found.names else ("", 0)
    if count > 1:
        raise BrokenError(f"{where} lists the node {name!r} twice")
    indices = set(known.values())
    listed: set[int] = set()
    for at, byte in enumerate(found.bitmap.rstrip(b"\0")):  # as large as a message may be
        for index in (8 * at + bit for bit in range(8) if byte >> bit & 1):
            if index not in indices:
                raise BrokenError(f"{where} lists the index {index}, which is no candidate")
            listed.add(index)
    for name in found.names:
        if name in known:
            listed.add(known[name])
        elif not either:
            raise BrokenError(f"{where} lists the node {name!r}, which is no candidate")
    return indices - listed if found.complement else listed


def verdicts(
    where: str, host: Host, found: scheduling.NodeVerdicts, within: Sequence[WorldNode]
) -> dict[int, pb.PluginStatus]:
    """Check the verdicts, and return those of the rejected nodes, by index."""
    rejected: dict[int, pb.PluginStatus] = {}
    for group in found.rejected:
        if group.status.code == Code.CODE_SUCCESS:
            raise BrokenError(f"{where} rejects nodes with CODE_SUCCESS")
        status("a verdict", group.status)
        for index in members(where, host, group.nodes, within):
            if index in rejected:
                raise BrokenError(f"{where} lists the node with index {index} in two groups")
            rejected[index] = group.status
    return rejected


def scores(
    where: str,
    host: Host,
    found: scheduling.Scores,
    within: Sequence[WorldNode],
    *,
    final: bool | None = None,
) -> list[int]:
    """Check that there is one score for each candidate, in one form; return them by candidate.

    `final`: they must be in 0..100; None: if the plugin's normalization says so.
    """
    forms = [name for name in ("dense", "named", "small") if getattr(found, name)]
    if len(forms) > 1:
        raise BrokenError(f"{where} answers scores in two forms: {' and '.join(forms)}")
    if forms == ["named"]:
        values = _named(where, host, found, within)
    else:
        values = list(found.small) if found.small else list(found.dense)
        if len(values) != len(within):
            raise BrokenError(f"{where} answers {len(values)} scores for {len(within)} candidates")
    if final is None:
        final = host.subject.plugin.normalization in _IN_RANGE
    if final and (wrong := [score for score in values if not 0 <= score <= 100]):
        raise BrokenError(f"{where} answers the score {wrong[0]}, which is outside 0..100")
    return values


def _named(where: str, host: Host, found: scheduling.Scores, within: Sequence[WorldNode]) -> list[int]:
    if host.subject.is_snapshot:
        raise BrokenError(f"{where} answers scores by name, which only a plugin in NAMES mode may")
    by_name = {entry.node: entry.score for entry in found.named}
    if len(by_name) != len(found.named):
        raise BrokenError(f"{where} scores a node twice")
    names = [node.name for node in within]
    if unknown := sorted(set(by_name) - set(names)):
        raise BrokenError(f"{where} scores the node {unknown[0]!r}, which is no candidate")
    if lacking := [name for name in names if name not in by_name]:
        raise BrokenError(f"{where} gives no score to the candidate {lacking[0]!r}")
    return [by_name[name] for name in names]


def early_scores(where: str, host: Host, answer: Any, within: Sequence[WorldNode]) -> None:
    """Check the early scores of PreFilter and Filter."""
    if not answer.HasField("early_scores"):
        return
    how = host.subject.plugin.normalization
    if how not in _EARLY:
        known = how in identity.ScoreNormalization.values()
        name = identity.ScoreNormalization.Name(how) if known else str(how)
        raise BrokenError(f"{where} answers early scores, which {name} does not allow")
    if answer.skip_score:
        raise BrokenError(f"{where} answers early scores and skip_score")
    if not host.subject.has("SCORE"):
        raise BrokenError(f"{where} answers early scores, and the plugin does not declare SCORE")
    scores(where, host, answer.early_scores, within)


def patches(where: str, host: Host, found: Sequence[Any], cycle: Cycle | None) -> None:
    """Check patches. `cycle` None: those of a call about no pod."""
    if len(found) > 64:
        raise BrokenError(f"{where} answers {len(found)} patches; 64 is the limit")
    declared = {need.resource for need in host.subject.plugin.needs if need.resource}
    for patch in found:
        what = f"{where} patches {patch.resource} {patch.ref.namespace}/{patch.ref.name}"
        if patch.resource == "pods":
            own = cycle.pod.ref if cycle is not None else pb.ObjectRef()
            if (patch.ref.namespace, patch.ref.name) != (own.namespace, own.name):
                raise BrokenError(f"{what}, which is not the pod of the cycle")
            if patch.ref.uid not in ("", own.uid):
                raise BrokenError(f"{what} with the uid of another pod")
        elif patch.resource not in declared:
            raise BrokenError(f"{what}, a resource that it does not declare with KIND_OBJECT")
        if patch.subresource not in ("", "status"):
            raise BrokenError(f"{what}, subresource {patch.subresource!r}; only status is allowed")
        try:
            body = read_bounded_json(patch.merge_patch_json)
        except NestedTooDeeplyError as err:
            raise BrokenError(f"{what} with JSON that is nested too deeply") from err
        except ValueError as err:
            raise BrokenError(f"{what} with bytes that are not JSON ({err})") from err
        if not isinstance(body, dict):
            raise BrokenError(f"{what} with JSON that is not an object")
        metadata = body.get("metadata", {})
        fields: Collection[str] = metadata if isinstance(metadata, dict) else ("name",)
        if changed := {"name", "namespace", "uid", "resourceVersion"} & set(fields):
            raise BrokenError(f"{what} and changes metadata.{min(changed)}")
