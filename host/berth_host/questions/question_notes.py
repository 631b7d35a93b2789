"""Notes about pods whose answer is less exact: those with volumes and those with resource claims.

Such a pod depends on objects besides nodes and pods. A node of a template has none of them, the pod of a
question owns none of them, and nothing of them is reserved for it. Called by `fit`, `drain`,
`simulating` and `app.asked_host`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.pod import Pod


def notes_about(pods: Sequence[Pod], *, on_templates: bool = False, in_turn: bool = False) -> list[str]:
    """Return the notes, a sentence each, with the cure.

    `on_templates`: there are nodes that do not exist. `in_turn`: the pods are placed one after the other, and
    each leaves less room for the next.
    """
    claiming = [pod for pod in pods if _listed(pod, "spec.resourceClaims")]
    mounting = [pod for pod in pods if _mounted(pod, "persistentVolumeClaim", "ephemeral")]
    owning = [pod for pod in pods if _claims_by_template(pod) or _mounted(pod, "ephemeral")]
    notes = []
    if owning:
        notes.append(
            f"{_named(owning)}: claims from a ResourceClaimTemplate and ephemeral volumes belong to a pod of"
            " the cluster, and a pod of a question owns none, so that it fits on no node; name claims that"
            " exist, or leave them out"
        )
    if in_turn and len(claiming) > 1:
        notes.append(
            f"{_named(claiming)}: a device that one of them takes counts as free for the next one; ask about"
            " pods with resource claims one at a time"
        )
    if in_turn and len(mounting) > 1:
        notes.append(
            f"{_named(mounting)}: a PersistentVolume and the storage capacity that one of them takes count as"
            " free for the next one; ask about pods with unbound claims one at a time"
        )
    if on_templates and claiming:
        notes.append(
            f"{_named(claiming)}: nodes of templates have no ResourceSlices, so no device of such a node is"
            " found; leave out the claims to ask about the rest of the node"
        )
    if on_templates and mounting:
        notes.append(
            f"{_named(mounting)}: nodes of templates have no CSINode, so limits of volumes do not count"
            " there, and storage capacity that is published by node is not found; leave out the volumes to"
            " ask about the rest of the node"
        )
    return notes


def notes_about_leaving(pods: Sequence[Pod]) -> list[str]:
    """Return a note about the pods of a drain whose devices are allocated to them where they run."""
    claiming = [pod for pod in pods if _listed(pod, "spec.resourceClaims")]
    if not claiming:
        return []
    return [
        f"{_named(claiming)}: resource claims count as they are allocated now, to a device of this node;"
        " once the pod is gone they are allocated anew, so that a replacement may fit elsewhere"
    ]


def note_about_members(pods: Sequence[Pod]) -> list[str]:
    """Return a note about the members of pod groups: a host with groups places such a group as a whole."""
    if not pods:
        return []
    return [
        f"{_named(pods)}: a member of a pod group is asked about by itself, and the scheduler places the"
        " group as a whole; ask about the group with berth why podgroup or, in a program, TryGroup"
    ]


def _listed(pod: Pod, path: str) -> Sequence[Mapping[str, Any]]:
    found = None if pod.object is None else pod.object.get(path)
    return found or ()


def _claims_by_template(pod: Pod) -> bool:
    return any(one.get("resourceClaimTemplateName") for one in _listed(pod, "spec.resourceClaims"))


def _mounted(pod: Pod, *sources: str) -> bool:
    return any(one.get(source) for one in _listed(pod, "spec.volumes") for source in sources)


def _named(pods: Sequence[Pod]) -> str:
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"{pods[0].key}{more}"
