"""Whether a change of a pod or a node may help a pod that InterPodAffinity rejected.

Used by `inter_pod_affinity`. Source: `pkg/scheduler/framework/plugins/interpodaffinity/plugin.go`
(isSchedulableAfterPodChange, isSchedulableAfterNodeChange), v1.36. Namespaces are not looked up here: a
namespace selector is asked about no labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from berth_sdk.errors import SelectorError
from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm

from berth_plugins.objects.of_events import as_node, as_pod, holds_place

_NONE: Final = PodAffinity()
_NO_LABELS: Final[Mapping[str, str]] = {}


def pod_may_help(event: ClusterEvent, pod: Pod) -> bool:
    """A pod came, left or changed its labels. Raises SelectorError where required terms cannot be read."""
    if event.new is not None and as_pod(event.new).uid == pod.uid:
        return True
    other = as_pod(event.old if event.new is None else event.new)
    if not holds_place(other):
        return False
    wanted = _readable(pod)
    if event.new is None:
        return _in_all(wanted.required_anti, other) or _in_all(_readable(other).required_anti, pod)
    if event.old is None:
        return _in_all(wanted.required, other)
    before = as_pod(event.old)
    if not _in_all(wanted.required, before) and _in_all(wanted.required, other):
        return True
    return _in_all(wanted.required_anti, before) and not _in_all(wanted.required_anti, other)


def node_may_help(event: ClusterEvent, pod: Pod) -> bool:
    """A node came, or its labels changed. Raises SelectorError where required terms cannot be read."""
    wanted = _readable(pod)
    after = as_node(event.new).labels
    if event.old is None:
        return bool(wanted.required_anti) or any(term.topology_key in after for term in wanted.required)
    before = as_node(event.old).labels
    return any(_appeared(term.topology_key, before, after) for term in wanted.required) or any(
        _appeared(term.topology_key, after, before) for term in wanted.required_anti
    )


def _appeared(key: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether there is a value `after`, different from the one `before`."""
    return key in after and before.get(key) != after[key]


def _readable(pod: Pod) -> PodAffinity:
    stanza = pod.pod_affinity
    if stanza is None:
        return _NONE
    if stanza.broken_required:
        raise SelectorError(", ".join(stanza.errors))
    return stanza


def _in_all(terms: Sequence[PodAffinityTerm], pod: Pod) -> bool:
    return bool(terms) and all(term.matches(pod.namespace, pod.labels, _NO_LABELS) for term in terms)
